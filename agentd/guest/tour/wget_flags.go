//go:build linux

package main

import (
	"errors"
	"flag"
	"io"
	"net/http"
	"strings"
	"time"
)

const wgetUsage = `usage: wget [-cqS] [-O FILE|-] [-P DIR] [-o LOGFILE] [-T SEC] [-t TRIES] [-U AGENT] [-Y on|off] [--spider]
	[--header 'NAME: VALUE']... [--post-data TEXT | --post-file FILE] [--no-check-certificate] URL...`

// wgetFlags are what the command line of wget says.
type wgetFlags struct {
	quiet, show, resume, spider, insecure, noProxy bool
	output, dir, log, agent, postData, postFile    string
	post                                           bool
	header                                         http.Header
	seconds                                        float64
	tries                                          int
	urls                                           []string
}

// parseWget reads the forms that busybox and GNU take: -qO-, -O FILE, --header=TEXT, --header TEXT, flags behind URLs.
func parseWget(args []string) (*wgetFlags, error) {
	f := &wgetFlags{header: make(http.Header)}
	fs := f.set()
	for args = spread(fs, args); len(args) > 0; args = fs.Args()[1:] {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			break
		}
		f.urls = append(f.urls, fs.Arg(0))
	}
	switch {
	case len(f.urls) == 0:
		return nil, errors.New("missing URL")
	case f.seconds < 0 || f.seconds > 1e6 || f.tries < 0:
		return nil, errors.New("-T and -t take numbers from 0 on")
	}
	if f.seconds == 0 {
		f.seconds = 1e6 // none
	}
	if f.tries == 0 {
		f.tries = 20
	}
	return f, nil
}

func (f *wgetFlags) set() *flag.FlagSet {
	fs := flag.NewFlagSet("wget", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, name := range []string{"q", "quiet", "nv", "no-verbose"} {
		fs.BoolVar(&f.quiet, name, false, "")
	}
	for name, to := range map[string]*bool{
		"S": &f.show, "server-response": &f.show, "c": &f.resume, "continue": &f.resume, "spider": &f.spider,
		"no-check-certificate": &f.insecure, "no-proxy": &f.noProxy,
	} {
		fs.BoolVar(to, name, false, "")
	}
	for name, to := range map[string]*string{
		"O": &f.output, "output-document": &f.output, "P": &f.dir, "directory-prefix": &f.dir, "o": &f.log, "output-file": &f.log,
		"post-file": &f.postFile,
	} {
		fs.StringVar(to, name, "", "")
	}
	for _, name := range []string{"U", "user-agent"} {
		fs.StringVar(&f.agent, name, "Wget", "")
	}
	for _, name := range []string{"T", "timeout"} {
		fs.Float64Var(&f.seconds, name, 15*time.Minute.Seconds(), "")
	}
	for _, name := range []string{"t", "tries"} {
		fs.IntVar(&f.tries, name, 1, "")
	}
	fs.Func("Y", "", func(value string) error { f.noProxy = value == "off"; return nil })
	fs.Func("post-data", "", func(value string) error { f.post, f.postData = true, value; return nil })
	fs.Func("header", "", func(value string) error {
		name, text, ok := strings.Cut(value, ":")
		if !ok {
			return errors.New("a header needs a colon")
		}
		f.header.Add(name, strings.TrimSpace(text))
		return nil
	})
	return fs
}

// spread writes short flags that stand together apart, for the package flag: -qO- is -q -O -.
func spread(fs *flag.FlagSet, args []string) (out []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, _, inline := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "--") || arg == "-nv" {
			out = append(out, arg)
			if strings.HasPrefix(arg, "--") && !inline && takesValue(fs, name) && i+1 < len(args) {
				i++
				out = append(out, args[i])
			}
			continue
		}
		for rest := arg[1:]; rest != ""; rest = rest[1:] {
			out = append(out, "-"+rest[:1])
			if !takesValue(fs, rest[:1]) {
				continue
			}
			if rest = rest[1:]; rest == "" && i+1 < len(args) {
				i++
				rest = args[i]
			}
			out = append(out, rest)
			break
		}
	}
	return out
}

func takesValue(fs *flag.FlagSet, name string) bool {
	f := fs.Lookup(name)
	if f == nil {
		return false
	}
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return !ok || !b.IsBoolFlag()
}
