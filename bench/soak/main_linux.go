package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/msb-project/msb/sandbox"
)

func main() {
	sandbox.MaybeRun()
	program := flag.String("program", "bin/msb", "the msb under test")
	rounds := flag.Int("rounds", 300, "how many, at least "+strconv.Itoa(minRounds))
	every := flag.Int("every", 25, "print the figures after so many rounds")
	backend := flag.String("vm", "auto", "the backend: auto, krun or qemu")
	limit := flag.Duration("limit", 0, "judge the rounds that were done by then; 0 does all of them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := soakFor(ctx, *program, *backend, *rounds, *every, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func soakFor(ctx context.Context, program, backend string, rounds, every int, limit time.Duration) (err error) {
	if rounds < minRounds || every < 1 {
		return fmt.Errorf("%d rounds, printed every %d: do at least %d", rounds, every, minRounds)
	}
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := prepare(dir, program, backend)
	if err != nil {
		return err
	}
	sb, err := s.make(ctx, stays)
	if err != nil {
		return err
	}
	defer func() { // a run that was interrupted leaves nothing either
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		for _, name := range []string{comes, clone, stays} {
			if e := s.remove(ctx, name); e != nil && !errors.Is(e, sandbox.ErrNoSandbox) {
				err = errors.Join(err, e)
			}
		}
	}()
	if err := sb.Close(); err != nil {
		return err
	}
	return s.rounds(ctx, rounds, every, limit)
}

// rounds does them, prints their figures and judges them.
func (s *soak) rounds(ctx context.Context, rounds, every int, limit time.Duration) error {
	var all []sample
	var shown []string
	begin := time.Now()
	for n := range rounds {
		guest, err := s.round(ctx, n)
		if err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
		now, err := s.take(guest)
		if err != nil {
			return err
		}
		all = append(all, now)
		if (n+1)%every == 0 {
			shown = append(shown, row(strconv.Itoa(n+1), now))
			fmt.Fprintf(os.Stderr, "%d rounds in %s\n%s", n+1, time.Since(begin).Round(time.Second), table(shown[len(shown)-1]))
		}
		if limit > 0 && time.Since(begin) > limit && len(all) >= minRounds {
			break
		}
	}
	fmt.Print(table(shown...), "\n", summary(all))
	fmt.Printf("%d rounds in %s\n", len(all), time.Since(begin).Round(time.Second))
	if names := grown(all); len(names) > 0 {
		return errors.New("these grew: " + strings.Join(names, ", "))
	}
	return nil
}

// prepare makes the state directory, a copy of the program by whose name its processes are told from others, and the files
// that are copied.
func prepare(dir, program, backend string) (*soak, error) {
	s := &soak{program: filepath.Join(dir, "msb"), home: filepath.Join(dir, "home"), files: filepath.Join(dir, "files"), backend: backend}
	from, err := filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	if os.Getenv("MSB_LIBDIR") == "" { // which the copy has not beside it
		if err := os.Setenv("MSB_LIBDIR", filepath.Join(filepath.Dir(from), "..", "lib", "msb")); err != nil {
			return nil, err
		}
	}
	if err := copyProgram(s.program, from); err != nil {
		return nil, err
	}
	if err := os.Mkdir(s.files, 0o700); err != nil {
		return nil, err
	}
	for i := range 16 {
		if err := os.WriteFile(filepath.Join(s.files, strconv.Itoa(i)), make([]byte, 64<<10), 0o600); err != nil {
			return nil, err
		}
	}
	s.state, err = sandbox.OpenHome(s.home)
	return s, err
}

func copyProgram(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
