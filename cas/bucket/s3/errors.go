package s3

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"flash/cas/bucket"
)

// verdict is what a failure of one try means.
type verdict struct {
	kind   error // of package bucket; nil: none of them
	passes bool  // another try may succeed
	remedy string
}

// errDamaged is a try whose bytes arrived otherwise than they were sent.
var errDamaged = errors.New("the bytes were damaged on the way")

// classify judges a try's failure. Precondition: the caller's context hasn't ended.
func (b *Bucket) classify(err error) verdict {
	for _, kind := range []error{bucket.ErrNotFound, bucket.ErrCondition, bucket.ErrTooLarge, bucket.ErrShort, bucket.ErrUnsupported} {
		if errors.Is(err, kind) {
			return verdict{kind: kind}
		}
	}
	var answer minio.ErrorResponse
	var source *sourceError
	switch {
	case errors.As(err, &source):
		return verdict{}
	case errors.Is(err, errDamaged):
		return verdict{kind: bucket.ErrIntegrity, passes: true, remedy: "read it again; if that fails too, the stored object or something on the way is broken"}
	case errors.Is(err, errNoCredentials):
		return verdict{kind: bucket.ErrDenied, remedy: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials (AWS_PROFILE chooses), or give this machine a role"}
	case errors.Is(err, errNotS3):
		return verdict{kind: bucket.ErrUnavailable, remedy: "check the endpoint " + b.config.Endpoint + ": the S3 API often has another port than the console"}
	case errors.Is(err, bucket.ErrNoBucket):
		return b.noBucket()
	case errors.As(err, &answer) && answer.StatusCode != 0 && answer.RequestID != "minio":
		return b.classifyAnswer(answer)
	default:
		return b.classifyConnection(err)
	}
}

func (b *Bucket) noBucket() verdict {
	return verdict{kind: bucket.ErrNoBucket, remedy: fmt.Sprintf("make the bucket %s at %s, or check its name, endpoint and region", b.config.Bucket, b.config.Endpoint)}
}

// classifyAnswer judges what the server said.
func (b *Bucket) classifyAnswer(a minio.ErrorResponse) verdict {
	switch a.Code {
	case "NoSuchKey":
		return verdict{kind: bucket.ErrNotFound}
	case "NoSuchBucket", "InvalidBucketName":
		return b.noBucket()
	case "PreconditionFailed":
		return verdict{kind: bucket.ErrCondition}
	case "InvalidRange":
		return verdict{kind: bucket.ErrShort}
	case "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch", "IncompleteBody":
		return verdict{kind: bucket.ErrIntegrity, passes: true, remedy: "send it again; if that fails too, something on the way is broken"}
	case "ConditionalRequestConflict", "OperationAborted", "SlowDown", "RequestTimeout", "Throttling", "InternalError", "ServiceUnavailable":
		return verdict{kind: bucket.ErrUnavailable, passes: true, remedy: "wait: the server is busy or broken"}
	case "RequestTimeTooSkewed":
		return b.skewed()
	case "InvalidAccessKeyId", "InvalidAccessKey", "XAdminUserNotFound":
		return verdict{kind: bucket.ErrDenied, remedy: "the server doesn't know this access key: check AWS_ACCESS_KEY_ID, AWS_PROFILE, and that the endpoint is the right one"}
	case "SignatureDoesNotMatch":
		return verdict{kind: bucket.ErrDenied, remedy: "the secret key doesn't belong to the access key (check AWS_SECRET_ACCESS_KEY), or the region isn't " + b.region()}
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken":
		return verdict{kind: bucket.ErrDenied, remedy: "the session's token has run out: log in again"}
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "InvalidRegion", "IllegalLocationConstraintException", "Redirect":
		return b.wrongRegion(a)
	case "NotImplemented", "APINotSupported":
		return verdict{kind: bucket.ErrUnsupported, remedy: "flash doctor remote shows what the server lacks"}
	case "EntityTooLarge":
		return verdict{kind: bucket.ErrUnsupported, remedy: "the server, or a proxy before it, limits the size of a PUT: raise the limit to 64 MiB or more"}
	}
	switch {
	case a.StatusCode == http.StatusRequestEntityTooLarge:
		return verdict{kind: bucket.ErrUnsupported, remedy: "the server, or a proxy before it, limits the size of a PUT: raise the limit to 64 MiB or more"}
	case a.StatusCode == http.StatusInsufficientStorage || strings.Contains(a.Code, "StorageFull") || strings.Contains(a.Code, "QuotaExceeded"):
		return verdict{remedy: "there is no room left at the server: free some, or raise the quota"}
	case a.StatusCode >= 500, a.StatusCode == http.StatusRequestTimeout, a.StatusCode == http.StatusTooManyRequests, a.StatusCode == http.StatusConflict:
		return verdict{kind: bucket.ErrUnavailable, passes: true, remedy: "wait: the server is busy or broken"}
	case a.StatusCode == http.StatusForbidden, a.StatusCode == http.StatusUnauthorized, a.StatusCode == http.StatusMethodNotAllowed:
		return verdict{kind: bucket.ErrDenied, remedy: "allow these credentials to get, put, list and delete objects of this bucket"}
	case a.StatusCode >= 300 && a.StatusCode < 400:
		return b.wrongRegion(a)
	case a.StatusCode == http.StatusPreconditionFailed:
		return verdict{kind: bucket.ErrCondition}
	default:
		return verdict{}
	}
}

func (b *Bucket) region() string { return firstOf(b.config.Region, "the default one") }

func (b *Bucket) wrongRegion(a minio.ErrorResponse) verdict {
	remedy := "the bucket isn't in the region " + b.region() + " or not at this endpoint: say which with --region and --endpoint"
	if a.Region != "" {
		remedy = fmt.Sprintf("the bucket is in the region %s: --region %s", a.Region, a.Region)
	}
	return verdict{kind: bucket.ErrNoBucket, remedy: remedy}
}

// skewed compares the clocks as of the answer that complained.
func (b *Bucket) skewed() verdict {
	remedy := "set this host's clock (NTP)"
	if skew, known := b.http.skew(); known && skew.Abs() > time.Minute {
		ahead := "behind"
		if skew < 0 {
			ahead = "ahead of"
		}
		remedy = fmt.Sprintf("this host's clock is %s %s the server's: set it (NTP)", skew.Abs().Round(time.Second), ahead)
	}
	return verdict{kind: bucket.ErrDenied, remedy: remedy}
}

// classifyConnection judges failures without an answer.
func (b *Bucket) classifyConnection(err error) verdict {
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	v := verdict{kind: bucket.ErrUnavailable, passes: true, remedy: "check the endpoint " + b.config.Endpoint + " and the network"}
	switch {
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &invalid):
		v.passes, v.remedy = false, "the endpoint's certificate isn't trusted for "+b.config.Endpoint+": install its authority (SSL_CERT_FILE), or use the name it was made for"
	case errors.As(err, &record), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		v.passes, v.remedy = false, "the server speaks plain HTTP: write the endpoint with http://"
	case errors.As(err, &dns) && dns.IsNotFound:
		v.remedy = "there is no host of that name: check the endpoint " + b.config.Endpoint
	}
	return v
}

// failure is the sentence for what a call ends with.
func (b *Bucket) failure(op, key string, v verdict, err error, tries int) error {
	what := fmt.Sprintf("%s %s", op, b.at(key))
	var answer minio.ErrorResponse
	if errors.As(err, &answer) && answer.Code != "" && !strings.Contains(err.Error(), answer.Code) {
		err = fmt.Errorf("%s: %w", answer.Code, err)
	}
	if v.kind != nil && !errors.Is(err, v.kind) {
		err = fmt.Errorf("%w: %w", v.kind, err)
	}
	if tries > 1 {
		what = fmt.Sprintf("%s (%d tries)", what, tries)
	}
	if v.remedy != "" {
		return fmt.Errorf("%s: %w; %s", what, err, v.remedy)
	}
	return fmt.Errorf("%s: %w", what, err)
}
