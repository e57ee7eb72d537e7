package s3

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// errNoCredentials is what a request ends with when none of the places has any.
var errNoCredentials = errors.New("no credentials were found")

// credentials looks into the places in the order of Config's comment. It looks when a request needs them, and again when they
// run out.
func (c Config) credentials() *credentials.Credentials {
	if c.AccessKey != "" {
		return credentials.NewStaticV4(c.AccessKey, string(c.SecretKey), string(c.SessionToken))
	}
	places := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		places = append(places, &credentials.IAM{Client: roleClient()})
	}
	return credentials.New(&someCredentials{credentials.Chain{Providers: places}})
}

// roleClient asks the machine's metadata service, which is near or isn't there.
func roleClient() *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
		TLSHandshakeTimeout: 2 * time.Second,
		IdleConnTimeout:     10 * time.Second,
		DisableKeepAlives:   true,
	}}
}

// someCredentials is a chain that says so when it found none, where the library's would send unsigned requests.
type someCredentials struct{ credentials.Chain }

func (s *someCredentials) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	v, err := s.Chain.RetrieveWithCredContext(cc)
	if err == nil && v.AccessKeyID == "" {
		return v, errNoCredentials
	}
	return v, err
}

func (s *someCredentials) Retrieve() (credentials.Value, error) {
	return s.RetrieveWithCredContext(nil)
}
