package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flash/cas/bucket"
	"flash/cas/bucket/s3"
)

// noCredentials hides whatever this machine has, and gives a config without any.
func noCredentials(t *testing.T) (c s3.Config, key, secret string) {
	t.Helper()
	c = config(t, server, "")
	key, secret = c.AccessKey, string(c.SecretKey)
	c.AccessKey, c.SecretKey = "", ""
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_WEB_IDENTITY_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	return c, key, secret
}

// wantAdmitted: the server answers that the object isn't there, which it tells nobody else.
func wantAdmitted(t *testing.T, c s3.Config) {
	t.Helper()
	if _, _, err := open(t, c).Get(t.Context(), "k", 1); !errors.Is(err, bucket.ErrNotFound) {
		t.Error(err)
	}
}

func TestMissingCredentialsAreNamed(t *testing.T) {
	c, _, _ := noCredentials(t)
	_, _, err := open(t, c).Get(t.Context(), "k", 1)
	if !errors.Is(err, bucket.ErrDenied) || !strings.Contains(err.Error(), "~/.aws/credentials") {
		t.Error(err)
	}
}

func TestCredentialsOfTheEnvironment(t *testing.T) {
	c, key, secret := noCredentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	wantAdmitted(t, c)
}

func TestCredentialsOfTheAWSFiles(t *testing.T) {
	c, key, secret := noCredentials(t)
	file := filepath.Join(t.TempDir(), "credentials")
	text := fmt.Sprintf("[backup]\naws_access_key_id = %s\naws_secret_access_key = %s\n", key, secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	t.Setenv("AWS_PROFILE", "backup")
	wantAdmitted(t, c)
}

func TestCredentialsOfTheMachinesRole(t *testing.T) {
	c, key, secret := noCredentials(t)
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":%q,"Token":"","Expiration":%q}`, key, secret, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer role.Close()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL+"/role")
	wantAdmitted(t, c)
}

func TestSecretsAreNotShown(t *testing.T) {
	c := s3.Config{Bucket: "bucket", AccessKey: "key", SecretKey: "hush-hush", SessionToken: "hush-too"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, c); strings.Contains(text, "hush") {
			t.Errorf("%s shows %s", verb, text)
		}
	}
}
