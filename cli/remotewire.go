package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/bucket/dir"
	"flash/cas/bucket/s3"
	"flash/cas/bucket/seal"
	"flash/cas/local"
	"flash/cas/remote"
	"flash/cas/tiered"
	"flash/store"
	"flash/store/offsite"
	"flash/vmm/host"
)

// remoteWiring builds remotes from their parts; see host.Remotes.
type remoteWiring struct {
	home  string
	near  *local.Store
	tiers *tiered.Store
	store *store.Store
	log   *slog.Logger
}

const cacheGiB = 4 // unless another is asked for

func (w *remoteWiring) Open(ctx context.Context, s host.RemoteSpec, secrets host.RemoteSecrets, create bool) (_ *host.OpenedRemote, err error) {
	plain, closeBucket, err := openBucket(s, secrets)
	if err != nil {
		return nil, err
	}
	closers := []func() error{closeBucket}
	closeAll := func() error {
		var errs []error
		for i := len(closers) - 1; i >= 0; i-- {
			errs = append(errs, closers[i]())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	out := &host.OpenedRemote{Plain: plain, Close: closeAll, Requests: func() bucket.Stats {
		if c, ok := plain.(bucket.Counter); ok {
			return c.Stats()
		}
		return bucket.Stats{}
	}}
	if out.Bucket, out.ID, err = unseal(ctx, plain, s, secrets, create); err != nil {
		return nil, err
	}
	out.Keys = &remoteKeys{plain, s, secrets}
	gib := s.CacheGiB
	if gib == 0 {
		gib = cacheGiB
	}
	out.Packs, err = remote.Open(ctx, remote.Config{Bucket: out.Bucket, CacheDir: filepath.Join(w.home, "far", s.Name), CacheBytes: int64(gib * (1 << 30)), Log: w.log})
	if err != nil {
		return nil, err
	}
	closers = append(closers, out.Packs.Close)
	id, err := offsite.LoadHostID(w.home)
	if err != nil {
		return nil, err
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("this host's name: %w", err)
	}
	out.Offsite, err = offsite.Open(ctx, offsite.Config{Name: s.Name, Store: w.store, Packs: w.near, Bucket: out.Bucket, Remote: out.Packs, Host: id, HostName: name,
		Grace: time.Duration(s.GraceSeconds) * time.Second, Log: w.log})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// openBucket opens what a URL names, unsealed.
func openBucket(s host.RemoteSpec, secrets host.RemoteSecrets) (bucket.Bucket, func() error, error) {
	switch scheme, _, _ := strings.Cut(s.URL, "://"); scheme {
	case "s3":
		name, prefix, err := s3.ParseURL(s.URL)
		if err != nil {
			return nil, nil, host.Errorf(host.CodeInvalid, "give it as s3://bucket/prefix", "%w", err)
		}
		rate := int64(s.RateMiB * (1 << 20))
		b, err := s3.New(s3.Config{Endpoint: s.Endpoint, Region: s.Region, Bucket: name, Prefix: prefix,
			AccessKey: secrets.AccessKey, SecretKey: s3.Secret(secrets.SecretKey), SessionToken: s3.Secret(secrets.SessionToken),
			UploadBytesPerSecond: rate, DownloadBytesPerSecond: rate})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	case "file":
		path, err := dir.ParseURL(s.URL)
		if err != nil {
			return nil, nil, host.Errorf(host.CodeInvalid, "give it as file:///path", "%w", err)
		}
		b, err := dir.Open(path)
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	}
	return nil, nil, host.Errorf(host.CodeInvalid, "give s3://bucket/prefix or file:///path", "%q is no URL of a remote", s.URL)
}

// unseal reads a remote's marker, which create makes where nothing is, and wraps an encrypted one.
func unseal(ctx context.Context, b bucket.Bucket, s host.RemoteSpec, secrets host.RemoteSecrets, create bool) (bucket.Bucket, string, error) {
	secret, err := secretOf(s, secrets)
	if err != nil {
		return nil, "", err
	}
	marker, _, err := seal.ReadMarker(ctx, b)
	var keys *seal.Keys
	if errors.Is(err, seal.ErrEmpty) && create {
		o := seal.CreateOptions{}
		if s.Sealed {
			o.Secret = secret
		}
		marker, keys, err = seal.CreateMarker(ctx, b, o)
		if errors.Is(err, seal.ErrExists) { // another host was faster
			marker, _, err = seal.ReadMarker(ctx, b)
		}
	}
	if err != nil {
		return nil, "", explainSeal(err)
	}
	if s.ID != "" {
		if err := marker.Check(seal.Known{ID: s.ID, Sealed: s.Sealed}); err != nil {
			return nil, "", explainSeal(err)
		}
	}
	if marker.Sealed() != s.Sealed {
		if s.Sealed {
			return nil, "", explainSeal(fmt.Errorf("%s: %w", b.Location(), seal.ErrUnsealed))
		}
		return nil, "", explainSeal(fmt.Errorf("%s: %w", b.Location(), seal.ErrSealed))
	}
	if !s.Sealed {
		return b, marker.ID, nil
	}
	if keys == nil {
		if secret == nil {
			return nil, "", fmt.Errorf("%w: neither its passphrase nor its key is known here", host.ErrLocked)
		}
		if keys, err = marker.Open(*secret); err != nil {
			return nil, "", explainSeal(err)
		}
	}
	defer keys.Wipe()
	return seal.Wrap(b, keys), marker.ID, nil
}

// secretOf is what opens a sealed remote, nil when nothing is known.
func secretOf(s host.RemoteSpec, secrets host.RemoteSecrets) (*seal.Secret, error) {
	if !s.Sealed {
		return nil, nil
	}
	key := secrets.Key
	if len(key) == 0 && secrets.Passphrase == "" && s.KeyFile != "" {
		p, err := os.ReadFile(s.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: its key file: %w", host.ErrLocked, err)
		}
		key = p
	}
	passphrase := secrets.Passphrase
	if passphrase == "" && len(key) == 0 {
		passphrase = os.Getenv("FLASH_PASSPHRASE")
	}
	var secret seal.Secret
	var err error
	switch {
	case len(key) > 0:
		secret, err = seal.KeyFile(key)
	case passphrase != "":
		secret, err = seal.Passphrase([]byte(passphrase))
	default:
		return nil, nil
	}
	if err != nil {
		return nil, explainSeal(err)
	}
	return &secret, nil
}

// explainSeal tells what is wrong with a marker or a secret, and what to do about it.
func explainSeal(err error) error {
	for _, k := range []struct {
		kind   error
		code   host.Code
		remedy string
	}{
		{seal.ErrEmpty, host.CodeRemoteRefused, "look at the URL; flash remote add makes a new one there"},
		{seal.ErrForeign, host.CodeRemoteRefused, "give a prefix of its own, as in s3://bucket/flash: nothing there was touched"},
		{seal.ErrFuture, host.CodeRemoteRefused, "use that version: nothing there was touched"},
		{seal.ErrMarker, host.CodeRemoteRefused, "restore flash.json there from a version the bucket keeps, or from a copy"},
		{seal.ErrOtherRemote, host.CodeRemoteRefused, "look at the URL; flash remote rm and add make the other one known"},
		{seal.ErrSealed, host.CodeRemoteLocked, "add it with --encrypt, and its passphrase or key file"},
		{seal.ErrUnsealed, host.CodeRemoteRefused, "add it without --encrypt, or give another prefix: an encrypted remote begins empty"},
		{seal.ErrPassphrase, host.CodeRemoteLocked, "give the right one: flash remote unlock asks again"},
		{seal.ErrKeyFile, host.CodeRemoteLocked, "give the right one: flash remote unlock --key-file"},
		{seal.ErrNotKeyFile, host.CodeInvalid, "give a file that flash made with --key-file or flash key export"},
	} {
		if errors.Is(err, k.kind) {
			return host.Errorf(k.code, k.remedy, "%w", err)
		}
	}
	return err
}

// Attach lets chunks that aren't near be read from a remote, which is opened at the first need.
func (w *remoteWiring) Attach(name string, open func(ctx context.Context) (*remote.Remote, error)) {
	w.tiers.SetFar(name, &farRemote{open: open})
}

func (w *remoteWiring) Detach(name string) { w.tiers.RemoveFar(name) }

// farRemote is a far tier that is opened when it is needed, and again when it couldn't be.
type farRemote struct {
	open func(ctx context.Context) (*remote.Remote, error)
}

// Has can't wait for anybody, so of a remote that isn't open yet it opens it in little time, or knows nothing.
func (f *farRemote) Has(hs []cas.Hash) []bool {
	ctx, cancel := context.WithTimeout(context.Background(), hasWait)
	defer cancel()
	r, err := f.open(ctx)
	if err != nil {
		return make([]bool, len(hs))
	}
	return r.Has(hs)
}

const hasWait = 5 * time.Second

func (f *farRemote) Get(ctx context.Context, ref cas.Ref, dst []byte) ([]byte, error) {
	r, err := f.open(ctx)
	if err != nil {
		return dst, err
	}
	return r.Get(ctx, ref, dst)
}

func (f *farRemote) GetMany(ctx context.Context, refs []cas.Ref, each func(i int, data []byte, err error) error) error {
	r, err := f.open(ctx)
	if err != nil {
		for i := range refs {
			if err := each(i, nil, err); err != nil {
				return err
			}
		}
		return nil
	}
	return r.GetMany(ctx, refs, each)
}

// remoteKeys changes the slots of an encrypted remote.
type remoteKeys struct {
	bucket  bucket.Bucket
	spec    host.RemoteSpec
	secrets host.RemoteSecrets
}

func (k *remoteKeys) secret() (seal.Secret, error) {
	s, err := secretOf(k.spec, k.secrets)
	if err == nil && s == nil {
		err = host.Errorf(host.CodeRemoteRefused, "only encrypted remotes have keys", "remote %s isn't encrypted", k.spec.Name)
	}
	if err != nil {
		return seal.Secret{}, err
	}
	return *s, nil
}

// Export gives the data key as a key file's text.
func (k *remoteKeys) Export(ctx context.Context) ([]byte, error) {
	have, err := k.secret()
	if err != nil {
		return nil, err
	}
	marker, _, err := seal.ReadMarker(ctx, k.bucket)
	if err != nil {
		return nil, explainSeal(err)
	}
	keys, err := marker.Open(have)
	if err != nil {
		return nil, explainSeal(err)
	}
	defer keys.Wipe()
	return keys.Export(marker.ID), nil
}

// Rotate replaces the slot that is in use by one for another secret.
func (k *remoteKeys) Rotate(ctx context.Context, next host.RemoteSecrets) error {
	have, err := k.secret()
	if err != nil {
		return err
	}
	s := k.spec
	s.KeyFile = ""
	with, err := secretOf(s, next)
	if err == nil && with == nil {
		err = host.Errorf(host.CodeInvalid, "give a new passphrase or --new-key-file", "no new secret was given")
	}
	if err != nil {
		return err
	}
	_, err = seal.Rotate(ctx, k.bucket, have, *with, seal.SlotOptions{})
	return explainSeal(err)
}
