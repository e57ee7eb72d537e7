// Package s3 is a bucket of an S3 server, Amazon's or another's, below a prefix of its keys.
//
// Invariants, besides those of package bucket:
//
//   - An object is one PUT, of at most 5 GiB: servers and clients drop conditions on multipart uploads.
//   - Nothing is buffered but what the caller asked for: a put reads its source, once for the checksum and once per try.
//   - No reader of a put's source is left when Put returns.
//   - What is sent carries its CRC-32C, and its MD5 too until the server has shown that it knows the former; a server refuses
//     what doesn't match. What is read whole is compared with the checksum the server keeps, or with the ETag where the server
//     has shown that its ETags are MD5s. Ranges have no checksum in S3: their length and place are compared, and the layers
//     above check their bytes.
//   - Requests are tried again here and nowhere below: the library's own retries are off, so that each try is counted, and
//     that a lost answer to a conditional put is known for one. A 412 is answered by comparing the object with the source.
//   - A request that makes no progress for Config.Stall ends and is tried again.
//   - Secrets are in no error, location or log line.
//
// Versions are ETags. A time by the server's clock is never compared with ours, but for telling that the clocks differ.
package s3

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"

	"flash/cas/bucket"
)

// Config says which bucket, and how it is spoken to. Only Bucket is needed.
type Config struct {
	Endpoint string // http://host:port, https://host or host (https); "": AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or Amazon
	Region   string // "": AWS_REGION, AWS_DEFAULT_REGION; else Amazon is asked, and others are us-east-1
	Bucket   string
	Prefix   string // of all keys, without the slash between

	// The credentials; "": the environment, then the AWS files (AWS_PROFILE), then the machine's role (IAM).
	AccessKey    string
	SecretKey    Secret
	SessionToken Secret

	Tries      int           // of a request, the first included; 0: 8
	BackOff    time.Duration // before the second try at most, doubled each time; 0: 100 ms
	BackOffCap time.Duration // the longest; 0: 5 s
	Stall      time.Duration // a request without progress for so long is given up; 0: 30 s

	UploadBytesPerSecond   int64 // 0: as fast as it goes
	DownloadBytesPerSecond int64
}

// Secret is a text that isn't shown when it is formatted.
type Secret string

// String hides the text.
func (Secret) String() string { return "(secret)" }

// GoString hides the text.
func (Secret) GoString() string { return "(secret)" }

// Bucket is a bucket of an S3 server. All methods are safe for concurrent use.
type Bucket struct {
	core   minio.Core
	http   *transport
	config Config
	prefix string // "" or ends with '/'

	exists       atomic.Bool // the server has said that there is the bucket
	knowsCRC     atomic.Bool // the server has returned a CRC-32C it was sent
	etagsAreMD5s atomic.Bool // an ETag was seen that is its object's MD5
}

// ParseURL reads s3://bucket or s3://bucket/prefix.
func ParseURL(location string) (name, prefix string, err error) {
	u, err := url.Parse(location)
	switch {
	case err != nil:
		return "", "", err
	case u.Scheme != "s3" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return "", "", fmt.Errorf("%s: a bucket is written s3://bucket/prefix", location)
	case u.User != nil:
		return "", "", errors.New("s3://…: credentials don't belong into a URL, which is stored and shown: put them into the environment or the AWS files")
	}
	prefix = strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := bucket.CheckKey(prefix); err != nil {
			return "", "", fmt.Errorf("%s: the prefix: %w", location, err)
		}
	}
	return u.Host, prefix, nil
}

// New makes the client. It asks the server nothing: the first call does.
func New(c Config) (*Bucket, error) {
	if c.Bucket == "" {
		return nil, errors.New("s3: the bucket has no name")
	}
	if c.Prefix = strings.Trim(c.Prefix, "/"); c.Prefix != "" {
		if err := bucket.CheckKey(c.Prefix); err != nil {
			return nil, fmt.Errorf("s3://%s: the prefix: %w", c.Bucket, err)
		}
		if len(c.Prefix) > 1024-1-bucket.MaxKeyBytes {
			return nil, fmt.Errorf("s3://%s: the prefix is longer than %d bytes", c.Bucket, 1024-1-bucket.MaxKeyBytes)
		}
	}
	c.Endpoint = firstOf(c.Endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com")
	host, secure, err := parseEndpoint(c.Endpoint)
	if err != nil {
		return nil, err
	}
	c.Region = firstOf(c.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if c.Region == "" && !strings.Contains(host, ".amazonaws.com") {
		c.Region = "us-east-1"
	}
	setDefault(&c.Tries, 8)
	setDefault(&c.BackOff, 100*time.Millisecond)
	setDefault(&c.BackOffCap, 5*time.Second)
	setDefault(&c.Stall, 30*time.Second)
	b := &Bucket{config: c, http: newTransport(c)}
	if c.Prefix != "" {
		b.prefix = c.Prefix + "/"
	}
	client, err := minio.New(host, &minio.Options{
		Creds: c.credentials(), Secure: secure, Region: c.Region, Transport: b.http, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("s3://%s at %s: %w", c.Bucket, c.Endpoint, err)
	}
	client.SetAppInfo("flash", "1")
	b.core = minio.Core{Client: client}
	return b, nil
}

func parseEndpoint(endpoint string) (host string, secure bool, err error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", false, fmt.Errorf("the endpoint isn't a URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return "", false, fmt.Errorf("the endpoint %s: http:// or https:// are spoken", u.Redacted())
	case u.User != nil:
		return "", false, fmt.Errorf("the endpoint %s: credentials don't belong there: put them into the environment or the AWS files", u.Redacted())
	case u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
		return "", false, fmt.Errorf("the endpoint %s: it is a host and a port, without path or query; bucket and prefix are in s3://bucket/prefix", endpoint)
	}
	return u.Host, u.Scheme == "https", nil
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func setDefault[T int | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// Location is s3://bucket/prefix.
func (b *Bucket) Location() string {
	return strings.TrimSuffix("s3://"+b.config.Bucket+"/"+b.prefix, "/")
}

// Close drops the idle connections. Calls that still run go on.
func (b *Bucket) Close() error {
	b.http.base.CloseIdleConnections()
	return nil
}

// Stats counts requests and bytes since New.
func (b *Bucket) Stats() bucket.Stats { return b.http.stats() }

// SetLimits changes the bytes a second for what is sent and received from now on; 0: as fast as it goes.
func (b *Bucket) SetLimits(up, down int64) { b.http.setLimits(up, down) }

// ClockSkew is how far the server's clock was before ours in its last answer; known is false while there was none.
func (b *Bucket) ClockSkew() (skew time.Duration, known bool) { return b.http.skew() }

var (
	_ bucket.Bucket  = (*Bucket)(nil)
	_ bucket.Counter = (*Bucket)(nil)
)
