package s3_test

import (
	"errors"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"flash/cas/bucket"
	"flash/cas/bucket/buckettest"
	"flash/cas/bucket/s3"
)

func TestWrongSettingsAreNamedWithTheirRemedy(t *testing.T) {
	good := config(t, server, "")
	page := buckettest.ProxyFor(t, server.Endpoint, buckettest.Plan{Faults: []buckettest.Fault{{Kind: buckettest.WebPage, Count: -1}}})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, c := range []struct {
		name   string
		change func(*s3.Config)
		kind   error
		remedy string
	}{
		{"bucket", func(c *s3.Config) { c.Bucket = "no-such-bucket" }, bucket.ErrNoBucket, "make the bucket no-such-bucket"},
		{"access key", func(c *s3.Config) { c.AccessKey = "somebody" }, bucket.ErrDenied, "AWS_ACCESS_KEY_ID"},
		{"secret key", func(c *s3.Config) { c.SecretKey = "guess" }, bucket.ErrDenied, "AWS_SECRET_ACCESS_KEY"},
		{"region", func(c *s3.Config) { c.Region = "eu-west-9" }, bucket.ErrNoBucket, "--region"},
		{"port", func(c *s3.Config) { c.Endpoint = "http://" + closed.Addr().String() }, bucket.ErrUnavailable, "check the endpoint"},
		{"host", func(c *s3.Config) { c.Endpoint = "http://no-such-host.invalid" }, bucket.ErrUnavailable, "check the endpoint"},
		{"web page", func(c *s3.Config) { c.Endpoint = page.Endpoint }, bucket.ErrUnavailable, "another port than the console"},
		{"scheme", func(c *s3.Config) { c.Endpoint = strings.Replace(c.Endpoint, "http:", "https:", 1) }, bucket.ErrUnavailable, "http://"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := good
			config.Tries = 2
			c.change(&config)
			b := open(t, config)
			_, _, getErr := b.Get(t.Context(), "k", 1)
			_, putErr := put(t, b, "k", []byte("x"), bucket.Condition{Absent: true})
			var listErr error
			for _, err := range b.List(t.Context(), "") {
				listErr = err
			}
			_, statErr := b.Stat(t.Context(), "k")
			for op, err := range map[string]error{"get": getErr, "put": putErr, "list": listErr, "stat": statErr} {
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.remedy) {
					t.Errorf("%s: %v", op, err)
				}
				if err != nil && strings.Contains(err.Error(), good.AccessKey+string(good.SecretKey)) {
					t.Errorf("%s shows a secret: %v", op, err)
				}
			}
		})
	}
}

func TestSkewedClockIsNamed(t *testing.T) {
	b, _ := behind(t, buckettest.Plan{Faults: []buckettest.Fault{{Kind: buckettest.ClockSkew, Delay: 2 * time.Hour, Count: -1}}})
	_, _, err := b.Get(t.Context(), "k", 1)
	if !errors.Is(err, bucket.ErrDenied) || !regexp.MustCompile("(1h59m59s|2h0m0s) behind the server's").MatchString(err.Error()) {
		t.Errorf("get: %v", err)
	}
	if skew, known := b.ClockSkew(); !known || (skew-2*time.Hour).Abs() > 5*time.Second {
		t.Errorf("the skew is %v, %v", skew, known)
	}
}

func TestURLsOfBuckets(t *testing.T) {
	for location, want := range map[string][2]string{
		"s3://b": {"b", ""}, "s3://b/": {"b", ""}, "s3://b/p": {"b", "p"}, "s3://b/p/q/": {"b", "p/q"},
	} {
		name, prefix, err := s3.ParseURL(location)
		if err != nil || name != want[0] || prefix != want[1] {
			t.Errorf("%s: %q, %q, %v", location, name, prefix, err)
		}
	}
	for _, location := range []string{"s3:b", "s3:///p", "http://b", "b", "s3://b/../x", "s3://key:secret@b/p", "s3://b?x=y"} {
		_, _, err := s3.ParseURL(location)
		if err == nil {
			t.Errorf("%s is taken", location)
		} else if strings.Contains(err.Error(), "secret@") {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
	for _, endpoint := range []string{"ftp://h", "http://h/path", "https://k:s@h", "http://"} {
		if _, err := s3.New(s3.Config{Bucket: "bucket", Endpoint: endpoint}); err == nil {
			t.Errorf("the endpoint %s is taken", endpoint)
		}
	}
}
