package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

const copyLong = `Copies files between this machine and a sandbox. NAME:PATH is a file or directory
in the sandbox; a PATH that does not begin with "/" is below "/". A sandbox that is
stopped is started for it without network, and stopped again: this machine never
reads the file system that a guest wrote.

Into DEST if it is a directory, else as DEST, which replaces a file. A source
that ends in "/." is what is in the directory. "-" reads a tar archive from
standard input and extracts it into DEST, or writes one of SRC to standard
output. Symbolic links are copied as links; look before you follow one that
came from a sandbox. Devices, FIFOs and sockets in a directory are left out and
named. A file that changes its size meanwhile is an error at the end.

Files in the sandbox belong to root, or with --archive to the owners' numbers
of the source. Files on this machine belong to you.`

func newCopyCommand(ui *ui) *cobra.Command {
	var o sandbox.CopyOptions
	c := &cobra.Command{
		Use:   "cp [flags] SRC DEST",
		Short: "Copy files between this machine and a sandbox",
		Long:  copyLong,
		Example: `  msb cp ./src agent:/root/               # becomes /root/src
  msb cp agent:/root/report.txt .
  msb cp agent:/var/log/. logs            # what is in /var/log
  tar c . | msb cp - agent:/root
  msb cp agent:/root - | tar t`,
		Args: named(cobra.ExactArgs(2), "msb cp takes a source and a destination, one of them NAME:PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			err := untilSignalled(c.Context(), func(ctx context.Context) error { return copyFiles(ctx, ui, args[0], args[1], o) })
			var wrong *copyUsage
			if errors.As(err, &wrong) {
				return &usageError{err: err, help: "msb cp --help"}
			}
			return err
		},
	}
	c.Flags().BoolVarP(&o.Follow, "follow-link", "L", false, "copy what SRC leads to if it is a symbolic link")
	c.Flags().BoolVarP(&o.KeepOwner, "archive", "a", false, "keep the owners' numbers in the sandbox")
	c.Flags().BoolVarP(&ui.quiet, "quiet", "q", false, "print errors alone: neither what was left out nor that a sandbox is started for it")
	return c
}

// copyUsage is a pair of arguments that msb cp can't copy between.
type copyUsage struct{ text string }

func (e *copyUsage) Error() string { return e.text }

// place is one end of a copy. name is empty for this machine.
type place struct{ name, path string }

// guestPath is "" on this machine.
func (p place) guestPath() string {
	if p.name == "" {
		return ""
	}
	return p.path
}

// parsePlace reads NAME:PATH. As in docker cp, an argument that begins with "/" or "." is a
// path of this machine, even with a colon in it.
func parsePlace(arg string) (place, error) {
	name, file, ok := strings.Cut(arg, ":")
	if !ok || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		if arg == "" {
			return place{}, &copyUsage{"an empty path"}
		}
		return place{path: arg}, nil
	}
	if file == "" {
		return place{}, &copyUsage{fmt.Sprintf("%q lacks a path; write %s:/PATH", arg, name)}
	}
	if name == "" {
		return place{}, &copyUsage{fmt.Sprintf("%q is neither NAME:PATH nor a path; write ./%s for a file of this machine", arg, arg)}
	}
	clean := path.Join("/", file)
	if clean != "/" && (strings.HasSuffix(file, "/.") || file == ".") { // Join takes off what changes the meaning
		clean += "/."
	} else if clean != "/" && strings.HasSuffix(file, "/") {
		clean += "/"
	}
	return place{name: name, path: clean}, nil
}

func copyFiles(ctx context.Context, ui *ui, src, dst string, o sandbox.CopyOptions) error {
	from, to, err := parsePlaces(src, dst)
	if err != nil {
		return err
	}
	return copyBetween(ctx, ui, from, to, o, func(ctx context.Context, home *sandbox.Home, name string) (*sandbox.Sandbox, error) {
		return openForFiles(ctx, ui, home, name, from.guestPath()+to.guestPath())
	})
}

// parsePlaces reads the two ends of a copy, of which one is on this machine.
func parsePlaces(src, dst string) (from, to place, err error) {
	if from, err = parsePlace(src); err != nil {
		return from, to, err
	}
	if to, err = parsePlace(dst); err != nil {
		return from, to, err
	}
	switch {
	case from.name != "" && to.name != "":
		return from, to, &copyUsage{"both are in a sandbox; copy to this machine first, or pipe: msb cp A:/x - | msb cp - B:/"}
	case from.name == "" && to.name == "":
		return from, to, &copyUsage{"neither is in a sandbox; name one as NAME:PATH"}
	}
	return from, to, nil
}

// copyBetween copies between this machine and the guest that open gives for the name.
func copyBetween(ctx context.Context, ui *ui, from, to place, o sandbox.CopyOptions, open func(context.Context, *sandbox.Home, string) (*sandbox.Sandbox, error)) error {
	var archive io.Reader
	var err error
	if from.name == "" && from.path == "-" {
		if archive, err = tarInput(untilDone(ctx, os.Stdin), isTerminal(os.Stdin)); err != nil {
			return err
		}
	}
	if err := checkHere(from, to); err != nil {
		return err
	}
	home, err := sandbox.OpenHome("")
	if err != nil {
		return err
	}
	sb, err := open(ctx, home, from.name+to.name)
	if err != nil {
		return err
	}
	if err = sb.CheckReach(from.guestPath() + to.guestPath()); err != nil {
		return errors.Join(err, sb.Close())
	}
	report, err := transfer(ctx, sb, archive, from, to, o)
	if e := sb.Close(); err == nil { // a volume's guest writes back
		err = e
	}
	noteSkipped(ui, report)
	return plainError(err)
}

// checkHere refuses what this machine alone can tell to be wrong, before a sandbox that is stopped is started for it.
func checkHere(from, to place) error {
	if from.name == "" && from.path != "-" {
		if _, err := os.Lstat(from.path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: there is no %s on this machine", sandbox.ErrCopy, from.path)
		}
	}
	if to.name == "" && to.path == "-" && isTerminal(os.Stdout) {
		return &copyUsage{"standard output is a terminal; send the archive to a file or a pipe"}
	}
	return nil
}

// tarInput checks the first header of a tar archive before anything is sent: for other input the guest would only report an
// early end.
func tarInput(in io.Reader, terminal bool) (io.Reader, error) {
	if terminal {
		return nil, &copyUsage{"standard input is a terminal; pipe an archive into it, as in tar c . | msb cp - NAME:/root"}
	}
	const block = 512
	r := bufio.NewReaderSize(in, block)
	head, err := r.Peek(block)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("standard input can't be read: %w", err)
	}
	for magic, tool := range map[string]string{"\x1f\x8b": "gunzip", "BZh": "bunzip2", "\xfd7zXZ\x00": "unxz", "\x28\xb5\x2f\xfd": "unzstd"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return nil, &copyUsage{fmt.Sprintf("standard input is compressed; write %s -c FILE | msb cp - NAME:DIR", tool)}
		}
	}
	_, err = tar.NewReader(bytes.NewReader(head)).Next()
	if len(head) < block || errors.Is(err, tar.ErrHeader) {
		return nil, &copyUsage{"standard input is no tar archive, which \"-\" reads; as a file it is copied with msb cp FILE NAME:PATH"}
	}
	return r, nil
}

// untilDone reads from r until ctx ends, also while a read waits.
func untilDone(ctx context.Context, r io.Reader) io.Reader {
	in, out := io.Pipe()
	context.AfterFunc(ctx, func() { _ = out.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(out, r)
		_ = out.CloseWithError(err)
	}()
	return in
}

func transfer(ctx context.Context, sb *sandbox.Sandbox, archive io.Reader, from, to place, o sandbox.CopyOptions) (sandbox.CopyReport, error) {
	switch {
	case archive != nil:
		owner := &agentclient.Owner{}
		if o.KeepOwner {
			owner = nil
		}
		r, err := sb.Files().Unpack(ctx, to.path, archive, owner)
		return sandbox.CopyReport(r), err
	case from.name == "":
		return sb.CopyTo(ctx, from.path, to.path, o)
	case to.path == "-":
		a, err := sb.Files().Pack(ctx, strings.TrimSuffix(from.path, "/."), "", o.Follows(from.path))
		if err != nil {
			return sandbox.CopyReport{}, err
		}
		defer func() { _ = a.Close() }()
		copied := make(chan error, 1)
		go func() {
			_, err := io.Copy(os.Stdout, a)
			copied <- err
		}()
		select {
		case err = <-copied:
		case <-ctx.Done(): // who reads standard output may have stopped
			return sandbox.CopyReport{}, ctx.Err()
		}
		if errors.Is(err, syscall.EPIPE) {
			err = exitCode(exitSignalled(syscall.SIGPIPE)) // whoever read the archive has what they wanted
		}
		return sandbox.CopyReport(a.Report()), err
	}
	return sb.CopyFrom(ctx, from.path, to.path, o)
}

// plainError strips the sentinels from a file's error: msb would exit with the code for a
// missing image or policy.
func plainError(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	if (errors.As(err, &p) || errors.As(err, &l)) && !errors.Is(err, syscall.ENOSPC) {
		return errors.New(err.Error())
	}
	return err
}
