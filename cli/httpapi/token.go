package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"

	"flash/vmm/host"
)

// minTokenBytes is 128 bits in base64, without padding: less can be guessed.
const minTokenBytes = 22

func checkToken(token string) error {
	if len(token) < minTokenBytes {
		return fmt.Errorf("TCP needs a bearer token of at least %d characters, this one has %d", minTokenBytes, len(token))
	}
	for _, c := range token {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("the token holds %q, which a header can't carry", c)
		}
	}
	return nil
}

// withToken lets only requests with the token through. The hashes are compared, so that neither the token's bytes nor
// its length can be learned from how long the answer takes.
func withToken(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(given)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			// The body isn't read: who has no token costs nothing.
			w.Header().Set("Connection", "close")
			writeError(w, host.Errorf(host.CodeUnauthorized, "send Authorization: Bearer TOKEN, the token of flash serve --token-file", "the request has no valid token"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
