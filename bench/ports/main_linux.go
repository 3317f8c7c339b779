package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
	"github.com/msb-project/msb/policies"
)

const (
	guestPort = 8080
	connects  = 500
)

func main() {
	role := flag.String("role", "", "internal: what this process is")
	gvproxy := flag.String("gvproxy", "", "path of a gvproxy; left out if empty")
	seconds := flag.Float64("seconds", 2, "length of each bulk transfer")
	rounds := flag.Int("rounds", 3, "how often each subject is measured, in turns; the medians count")
	out := flag.String("out", "", "write every value to this file, for benchstat")
	many := flag.Int("many", 1000, "connections that are open at once; each takes two descriptors here")
	flag.Parse()
	err := errors.New("this needs root, to make network namespaces")
	switch {
	case *role == "gateway":
		err = serveGateway()
	case os.Geteuid() == 0:
		err = compare(*gvproxy, *out, *rounds, *many, time.Duration(*seconds*float64(time.Second)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/ports:", err)
		os.Exit(1)
	}
}

// serveGateway is a gateway on descriptor 3 that publishes guestPort, and says where.
func serveGateway() error {
	conn, err := net.FileConn(os.NewFile(3, "link"))
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Config{Sandbox: "bench", Policy: policies.Default(), Link: netstack.Config{MTU: netstack.LargeMTU}})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go gateway.Publish(context.Background(), g, l, guestPort)
	fmt.Println(l.Addr())
	return g.Serve(context.Background(), netstack.NewStreamLink(conn))
}

// result is of one subject: bytes per second, the median of a connection with one byte there and back, and how long
// many connections took that were open at once.
type result struct {
	down, up float64
	connect  time.Duration
	many     time.Duration
	failed   int
}

func compare(gvproxy, out string, rounds, many int, bulk time.Duration) error {
	subjects := []string{figures.OfMsb}
	if gvproxy != "" {
		subjects = append(subjects, "gvproxy")
	}
	var set figures.Set
	atOnce := strconv.Itoa(many) + " at once"
	for range rounds {
		for _, s := range subjects {
			r, err := measure(s, gvproxy, many, bulk)
			if err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
			set.Add("Ports/down", s, figures.Rate, r.down)
			set.Add("Ports/up", s, figures.Rate, r.up)
			set.Add("Ports/connect+1B", s, figures.Seconds, r.connect.Seconds())
			set.Add("Ports/"+atOnce, s, figures.Seconds, r.many.Seconds())
			set.Add("Ports/"+atOnce, s, "failures", float64(r.failed))
		}
	}
	fmt.Printf("%-8s  %12s  %12s  %12s  %s\n", "", "down MB/s", "up MB/s", "connect", atOnce)
	for _, s := range subjects {
		mid := func(series, unit string) float64 { return figures.Median(set.Values("Ports/"+series, s, unit)) }
		fmt.Printf("%-8s  %12.0f  %12.0f  %10.0fµs  %.0fms, %.0f failed\n", s, mid("down", figures.Rate)/1e6, mid("up", figures.Rate)/1e6,
			mid("connect+1B", figures.Seconds)*1e6, mid(atOnce, figures.Seconds)*1e3, mid(atOnce, "failures"))
	}
	return set.WriteFile(out)
}

// measure starts a subject between a guest's server and this process, and drives it.
func measure(subject, gvproxy string, many int, bulk time.Duration) (f result, err error) {
	mtu := netstack.LargeMTU
	if subject == "gvproxy" {
		mtu = netstack.DefaultMTU
	}
	plan, err := netstack.New(netstack.Config{MTU: mtu, Handler: &netstacktest.Handler{}})
	if err != nil {
		return f, err
	}
	cfg := plan.Config()
	_ = plan.Close()
	g, err := netstacktest.OpenTapGuest(cfg)
	if err != nil {
		return f, err
	}
	defer g.Close()
	server, err := serve(g)
	if err != nil {
		return f, err
	}
	defer server.Close()
	begin := startMsb
	if subject == "gvproxy" {
		begin = func() (net.Conn, string, func(), error) { return startGvproxy(gvproxy) }
	}
	link, at, stop, err := begin()
	if err != nil {
		return f, err
	}
	defer stop()
	g.Bridge(link)
	return drive(at, many, bulk)
}

// serve answers in the guest: the first byte of a connection says how.
func serve(g *netstacktest.TapGuest) (l net.Listener, err error) {
	err = g.Do(func() (err error) {
		l, err = net.Listen("tcp4", "0.0.0.0:"+strconv.Itoa(guestPort))
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	return l, nil
}

func answer(c net.Conn) {
	defer c.Close()
	var how [1]byte
	if _, err := io.ReadFull(c, how[:]); err != nil {
		return
	}
	switch how[0] {
	case 'd':
		for b := make([]byte, 1<<18); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	case 'u':
		_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, make([]byte, 1<<18))
	default:
		if _, err := c.Write(how[:]); err == nil {
			_, _ = io.Copy(io.Discard, c)
		}
	}
}

func startMsb() (link net.Conn, at string, stop func(), err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, "", nil, err
	}
	far, near := os.NewFile(uintptr(fds[0]), "far"), os.NewFile(uintptr(fds[1]), "near")
	defer func() { _, _ = far.Close(), near.Close() }()
	exe, err := os.Executable()
	if err != nil {
		return nil, "", nil, err
	}
	cmd := exec.Command(exe, "-role", "gateway")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{far}, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", nil, err
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		link, err = net.FileConn(near)
	}
	if err != nil {
		stop()
		return nil, "", nil, err
	}
	return link, strings.TrimSpace(line), stop, nil
}

func startGvproxy(path string) (link net.Conn, at string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "benchports")
	if err != nil {
		return nil, "", nil, err
	}
	sock, api := filepath.Join(dir, "qemu.sock"), filepath.Join(dir, "api.sock")
	cmd := exec.Command(path, "-listen-qemu", "unix://"+sock, "-listen", "unix://"+api, "-mtu", "1500", "-ssh-port", "-1")
	if err := cmd.Start(); err != nil {
		return nil, "", nil, err
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = os.RemoveAll(dir) }
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		stop()
		return nil, "", nil, err
	}
	at = free.Addr().String()
	_ = free.Close()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", api)
	}}}
	body := fmt.Sprintf(`{"local":%q,"remote":"192.168.127.2:%d","protocol":"tcp"}`, at, guestPort)
	err = await(func() error {
		resp, err := client.Post("http://gvproxy/services/forwarder/expose", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	if err == nil {
		link, err = net.Dial("unix", sock)
	}
	if err != nil {
		stop()
		return nil, "", nil, err
	}
	return link, at, stop, nil
}

// await tries until it works, for ten seconds.
func await(try func() error) (err error) {
	for range 200 {
		if err = try(); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// ask opens a connection and has one byte there and back.
func ask(at string) (c net.Conn, err error) {
	c, err = net.DialTimeout("tcp4", at, 20*time.Second)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err = c.Write([]byte("e")); err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func drive(at string, many int, bulk time.Duration) (f result, err error) {
	if _, err := netip.ParseAddrPort(at); err != nil {
		return f, err
	}
	if err := await(func() error {
		c, err := ask(at)
		if err == nil {
			_ = c.Close()
		}
		return err
	}); err != nil {
		return f, err
	}
	if f.down, err = transfer(at, 'd', bulk); err != nil {
		return f, err
	}
	if f.up, err = transfer(at, 'u', bulk); err != nil {
		return f, err
	}
	times := make([]time.Duration, 0, connects)
	for range connects {
		begin := time.Now()
		c, err := ask(at)
		if err != nil {
			return f, err
		}
		times = append(times, time.Since(begin))
		_ = c.Close()
	}
	f.connect = figures.MedianTime(times)
	f.many, f.failed = openMany(at, many)
	return f, nil
}

// transfer returns bytes per second.
func transfer(at string, how byte, bulk time.Duration) (float64, error) {
	c, err := net.Dial("tcp4", at)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Write([]byte{how}); err != nil {
		return 0, err
	}
	begin := time.Now()
	_ = c.SetDeadline(begin.Add(bulk))
	var n int64
	if how == 'd' {
		n, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, make([]byte, 1<<18))
	} else {
		for b := make([]byte, 1<<18); err == nil; {
			var m int
			m, err = c.Write(b)
			n += int64(m)
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("the transfer ended: %w", err)
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

// openMany has many connections open at once, each with a byte there and back.
func openMany(at string, many int) (took time.Duration, failed int) {
	const dialers = 64
	begin := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	open := make([]net.Conn, 0, many)
	for d := range dialers {
		wg.Go(func() {
			for range many/dialers + min(1, max(0, many%dialers-d)) {
				c, err := ask(at)
				mu.Lock()
				if err != nil {
					failed++
				} else {
					open = append(open, c)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	took = time.Since(begin)
	for _, c := range open {
		_ = c.Close()
	}
	return took, failed
}
