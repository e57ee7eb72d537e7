package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"flash/vmm/host"
)

// CopyIn sends a tar stream. The server asks for it only once it has found the VM.
func (c *Client) CopyIn(ctx context.Context, id, dir string, tar io.Reader) error {
	path, err := vmURL(id, "files")
	if err != nil {
		return err
	}
	src := &sourceReader{r: tar}
	resp, err := c.send(ctx, "PUT", path+"?"+url.Values{"path": {dir}}.Encode(), src, http.Header{
		"Content-Type": {"application/x-tar"},
		"Expect":       {"100-continue"},
	})
	if src.err != nil { // the caller's own failure, not the conversation's
		if err == nil {
			resp.Body.Close()
		}
		return src.err
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.check(ctx, resp)
}

// sourceReader remembers why its source failed.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (c *Client) CopyOut(ctx context.Context, id, path string, tar io.Writer) error {
	return c.download(ctx, id, "files", url.Values{"path": {path}}, tar)
}

func (c *Client) Logs(ctx context.Context, id string, follow bool, w io.Writer) error {
	return c.download(ctx, id, "logs", url.Values{"follow": {strconv.FormatBool(follow)}}, w)
}

// download copies an answer's body; the trailer says whether it is whole.
func (c *Client) download(ctx context.Context, id, what string, q url.Values, w io.Writer) error {
	path, err := vmURL(id, what)
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, "GET", path+"?"+q.Encode(), nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := c.check(ctx, resp); err != nil {
		return err
	}
	dst := &sinkWriter{w: w}
	_, err = io.CopyBuffer(dst, resp.Body, make([]byte, maxDataBytes))
	switch {
	case dst.err != nil:
		return dst.err
	case err != nil:
		return c.broken(ctx, err)
	}
	if t := resp.Trailer.Get(errorTrailer); t != "" {
		var e host.Error
		if err := json.Unmarshal([]byte(t), &e); err != nil || e.Code == "" {
			return host.Errorf(host.CodeInternal, "the daemon's log may say more", "the daemon failed: %s", t)
		}
		return &e
	}
	return nil
}

// sinkWriter remembers why its sink failed.
type sinkWriter struct {
	w   io.Writer
	err error
}

func (s *sinkWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

func (c *Client) BuildBundle(ctx context.Context, r host.BuildRequest, progress func(host.Progress)) (host.Bundle, error) {
	return c.addBundle(ctx, bundleBody{Build: &r}, progress)
}

func (c *Client) ImportBundle(ctx context.Context, r host.ImportRequest, progress func(host.Progress)) (host.Bundle, error) {
	return c.addBundle(ctx, bundleBody{Import: &r}, progress)
}

func (c *Client) addBundle(ctx context.Context, body bundleBody, progress func(host.Progress)) (host.Bundle, error) {
	p, err := json.Marshal(body)
	if err != nil {
		return host.Bundle{}, host.Errorf(host.CodeInternal, "report this", "encoding the request: %w", err)
	}
	resp, err := c.send(ctx, "POST", "/v1/host/bundles", bytes.NewReader(p), nil)
	if err != nil {
		return host.Bundle{}, err
	}
	defer resp.Body.Close()
	if err := c.check(ctx, resp); err != nil {
		return host.Bundle{}, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		var l bundleLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return host.Bundle{}, c.broken(ctx, err)
		}
		switch {
		case l.Error != nil && l.Error.Code == "":
			return host.Bundle{}, c.broken(ctx, errors.New("it told of a failure without saying which"))
		case l.Error != nil:
			return host.Bundle{}, l.Error
		case l.Bundle != nil:
			return *l.Bundle, nil
		case l.Progress != nil && progress != nil:
			progress(*l.Progress)
		}
	}
	err = lines.Err()
	if err == nil {
		err = errors.New("its answer ended without a bundle")
	}
	return host.Bundle{}, c.broken(ctx, err)
}
