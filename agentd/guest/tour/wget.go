//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// wget is the built-in image's wget for HTTP and HTTPS: busybox's TLS sends no signature algorithms, which
// servers of today refuse, checks no certificate, and fails with -T. Other schemes are still busybox's, whose
// applet has the name wftp in the image (guest/mkparts).
type wget struct {
	*wgetFlags
	stdout, stderr io.Writer
	client         *http.Client
	out            io.Writer // of -O, once it is open
}

// runWget returns the exit code.
func runWget(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f, err := parseWget(args)
	if err != nil {
		fmt.Fprintf(stderr, "wget: %s\n%s\n", err, wgetUsage)
		return wgetOther
	}
	w := &wget{wgetFlags: f, stdout: stdout, stderr: stderr}
	if f.log != "" && f.log != "-" {
		log, err := os.Create(f.log)
		if err != nil {
			fmt.Fprintf(stderr, "wget: %s\n", err)
			return wgetOther
		}
		defer log.Close()
		w.stderr = log
	}
	w.client = &http.Client{Transport: w.transport(), CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) > 20 {
			return errors.New("too many redirections")
		}
		return nil
	}}
	defer w.client.CloseIdleConnections()
	code := 0
	for _, raw := range f.urls {
		if err := w.try(ctx, raw); err != nil {
			code = max(code, w.report(err))
		}
	}
	return code
}

// try fetches one URL, again after failures of the network that came before any byte of the answer.
func (w *wget) try(ctx context.Context, raw string) error {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return errors.Unwrap(err)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return w.busybox(ctx, raw)
	}
	resp, err := w.ask(ctx, u)
	for n := 1; n < w.tries && err != nil && ofNetwork(err); n++ {
		resp, err = w.ask(ctx, u)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return w.save(u, resp)
}

// busybox runs the applet for what is not HTTP.
func (w *wget) busybox(ctx context.Context, raw string) error {
	args := []string{"wftp"}
	if w.quiet {
		args = append(args, "-q")
	}
	if w.resume {
		args = append(args, "-c")
	}
	for flag, value := range map[string]string{"-O": w.output, "-P": w.dir} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	cmd := exec.CommandContext(ctx, "/bin/busybox", append(args, raw)...)
	cmd.Stdout, cmd.Stderr = w.stdout, w.stderr
	return cmd.Run()
}

func (w *wget) ask(ctx context.Context, u *url.URL) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header = w.header.Clone()
	if req.Host = req.Header.Get("Host"); req.Host == "" {
		req.Host = u.Host
	}
	if len(req.Header.Values("User-Agent")) == 0 {
		req.Header.Set("User-Agent", w.agent)
	}
	if w.spider {
		req.Method = http.MethodHead
	}
	if err := w.body(req); err != nil {
		return nil, err
	}
	if size := w.resumeAt(u); size > 0 {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(size, 10)+"-")
	}
	w.say("connecting to %s", u.Host)
	return w.client.Do(req)
}

// body makes the request a POST where --post-data or --post-file says so.
func (w *wget) body(req *http.Request) error {
	switch {
	case w.postFile != "":
		open := func() (io.ReadCloser, error) { return os.Open(w.postFile) }
		info, err := os.Stat(w.postFile)
		if err != nil {
			return err
		}
		if req.ContentLength = info.Size(); !info.Mode().IsRegular() {
			req.ContentLength = -1
		}
		if req.ContentLength != 0 {
			if req.Body, err = open(); err != nil {
				return err
			}
			req.GetBody = open
		}
	case w.post:
		open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(w.postData)), nil }
		if req.ContentLength = int64(len(w.postData)); req.ContentLength > 0 {
			req.Body, _ = open()
			req.GetBody = open
		}
	default:
		return nil
	}
	req.Method = http.MethodPost
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return nil
}

// file is where the answer goes; "-" is standard output.
func (w *wget) file(u *url.URL) string {
	if w.output != "" {
		return w.output
	}
	name := path.Base(u.EscapedPath())
	if name == "." || name == "/" || strings.HasSuffix(u.Path, "/") {
		name = "index.html"
	}
	return filepath.Join(w.dir, name)
}

// resumeAt is how much of the file -c finds.
func (w *wget) resumeAt(u *url.URL) int64 {
	info, err := os.Stat(w.file(u))
	if !w.resume || w.spider || w.output == "-" || err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

// save writes the body of a successful answer. A file that is cut off stays, for -c.
func (w *wget) save(u *url.URL, resp *http.Response) error {
	size := w.resumeAt(u)
	switch {
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && size > 0:
		w.say("the file is already complete")
		return nil
	case resp.StatusCode >= http.StatusBadRequest:
		return statusOf(resp)
	case w.spider:
		w.say("remote file exists")
		return nil
	case resp.StatusCode != http.StatusPartialContent:
		size = 0
	case !strings.HasPrefix(resp.Header.Get("Content-Range"), "bytes "+strconv.FormatInt(size, 10)+"-"):
		return errors.New("server returned another range than was asked for")
	}
	if w.dir != "" {
		if err := os.MkdirAll(w.dir, 0o777); err != nil { //nolint:gosec // the umask decides
			return err
		}
	}
	name := w.file(u)
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	switch {
	case w.output == "-":
		w.out = w.stdout
	case size > 0:
		flags = os.O_WRONLY | os.O_APPEND
	case w.resume, w.output != "":
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	out := w.out
	if out == nil {
		f, err := os.OpenFile(name, flags, 0o666) //nolint:gosec // the umask decides
		if err != nil {
			return err
		}
		if w.output != "" {
			w.out = f // the next URL's answer goes there as well; closed by the end of the program
		} else {
			defer f.Close()
		}
		out = f
	}
	if _, err := io.Copy(out, resp.Body); err != nil {
		return fmt.Errorf("%s: connection closed before the end: %w", name, err)
	}
	w.say("%q saved", name)
	return nil
}

func (w *wget) say(format string, args ...any) {
	if !w.quiet {
		fmt.Fprintf(w.stderr, "wget: "+format+"\n", args...)
	}
}
