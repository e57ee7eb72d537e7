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
	return readWork(ctx, c, "/v1/host/bundles", body, maxLineBytes, progress, func(l bundleLine) (*host.Progress, *host.Error, *host.Bundle) {
		return l.Progress, l.Error, l.Bundle
	})
}

// readWork asks for long work, which answers in lines L of progress and at last a result or a failure; parts tells which a line has.
func readWork[L, T any](ctx context.Context, c *Client, path string, body any, maxLine int, progress func(host.Progress), parts func(L) (*host.Progress, *host.Error, *T)) (none T, err error) {
	p, err := json.Marshal(body)
	if err != nil {
		return none, host.Errorf(host.CodeInternal, "report this", "encoding the request: %w", err)
	}
	resp, err := c.send(ctx, "POST", path, bytes.NewReader(p), nil)
	if err != nil {
		return none, err
	}
	defer resp.Body.Close()
	if err := c.check(ctx, resp); err != nil {
		return none, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var l L
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return none, c.broken(ctx, err)
		}
		step, failed, result := parts(l)
		switch {
		case failed != nil && failed.Code == "":
			return none, c.broken(ctx, errors.New("it told of a failure without saying which"))
		case failed != nil:
			return none, failed
		case result != nil:
			return *result, nil
		case step != nil && progress != nil:
			progress(*step)
		}
	}
	if err = lines.Err(); err == nil {
		err = errors.New("its answer ended without a result")
	}
	return none, c.broken(ctx, err)
}
