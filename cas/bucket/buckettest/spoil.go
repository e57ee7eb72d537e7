package buckettest

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answer sends the server's answer, spoiled where the fault says so.
func (p *Proxy) answer(w http.ResponseWriter, req *http.Request, resp *http.Response, f Fault, verb string) {
	switch f.Kind {
	case ResetAfter:
		io.Copy(io.Discard, resp.Body)
		reset(w)
		return
	case Error500After:
		io.Copy(io.Discard, resp.Body)
		refuseWith(w, req, http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")
		return
	case IgnoreConditions:
		if resp.StatusCode == http.StatusPreconditionFailed {
			falseSuccess(w, req)
			return
		}
	case IgnoreChecksums:
		if resp.StatusCode == http.StatusBadRequest {
			falseSuccess(w, req)
			return
		}
	case IgnoreRanges:
		if resp.StatusCode == http.StatusPartialContent {
			wholeObject(w, resp)
			return
		}
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.Header().Del("Connection")
	if f.Kind == ClockSkew {
		w.Header().Set("Date", time.Now().Add(f.Delay).UTC().Format(http.TimeFormat))
	}
	if req.Method == http.MethodHead || (f.Kind != TruncatedBody && f.Kind != WrongBytes && f.Kind != SlowBody && verb != "LIST") {
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
		return
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		reset(w)
		return
	}
	if verb == "LIST" && resp.StatusCode == http.StatusOK {
		p.mu.Lock()
		p.lists[req.URL.RawQuery] = bytes.Clone(data)
		p.mu.Unlock()
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(resp.StatusCode)
	sendSpoiled(w, req, data, f, verb)
}

func sendSpoiled(w http.ResponseWriter, req *http.Request, data []byte, f Fault, verb string) {
	switch {
	case f.Kind == TruncatedBody && len(data) > 0:
		w.Write(data[:len(data)/2])
		http.NewResponseController(w).Flush()
		reset(w)
		return
	case f.Kind == SlowBody:
		w.Write(data[:len(data)/2])
		http.NewResponseController(w).Flush()
		delay := f.Delay
		if delay == 0 {
			delay = 50 * time.Millisecond
		}
		select {
		case <-time.After(delay):
		case <-req.Context().Done():
			return
		}
		data = data[len(data)/2:]
	case f.Kind == WrongBytes && verb == "LIST": // where it can be told: a list has no checksum
		if i := bytes.LastIndexByte(data, '<'); i >= 0 {
			data[i] = '!'
		}
	case f.Kind == WrongBytes && verb == "GET" && len(data) > 0:
		data[len(data)/2] ^= 0x20
	}
	w.Write(data)
}

// falseSuccess says that a put was done which the server has refused.
func falseSuccess(w http.ResponseWriter, req *http.Request) {
	sum := md5.Sum([]byte(req.URL.Path))
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
	w.WriteHeader(http.StatusOK)
}

// wholeObject makes of a range what a server sends that knows none: as many bytes as there are, the range's among zeros.
func wholeObject(w http.ResponseWriter, resp *http.Response) {
	var first, last, total int64
	if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total); err != nil || total > 64<<20 {
		reset(w)
		return
	}
	data := make([]byte, total)
	io.ReadFull(resp.Body, data[first:last+1])
	for name, values := range resp.Header {
		if !strings.HasPrefix(name, "Content-") {
			w.Header()[name] = values
		}
	}
	w.Header().Set("Content-Length", strconv.FormatInt(total, 10))
	w.Write(data)
}

// reset ends the client's connection with a reset.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // closes it, at least
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}
