package host

import "context"

// RemoteKeyRequest exports the key of an encrypted remote, or replaces the secret that opens it.
type RemoteKeyRequest struct {
	Remote string         `json:"-"`
	Next   *RemoteSecrets `json:"next,omitempty"` // nil: export
}

// RemoteKeyResult holds the exported key, a key file's text.
type RemoteKeyResult struct {
	Key []byte `json:"key,omitempty"`
}

// RemoteKey does what r says.
func (h *Host) RemoteKey(ctx context.Context, r RemoteKeyRequest) (RemoteKeyResult, error) {
	k, opened, err := h.use(ctx, r.Remote)
	if err != nil {
		return RemoteKeyResult{}, err
	}
	if r.Next == nil {
		key, err := opened.Keys.Export(ctx)
		return RemoteKeyResult{Key: key}, h.explainRemote(err, k.now().Name, "")
	}
	if err := opened.Keys.Rotate(ctx, *r.Next); err != nil {
		return RemoteKeyResult{}, h.explainRemote(err, k.now().Name, "")
	}
	if err := k.shut(); err != nil { // the next need opens it with the new secret
		h.log.Warn("remote not closed cleanly", "remote", k.now().Name, "cause", err)
	}
	k.mu.Lock()
	k.secrets.Passphrase, k.secrets.Key = r.Next.Passphrase, r.Next.Key
	k.mu.Unlock()
	return RemoteKeyResult{}, nil
}
