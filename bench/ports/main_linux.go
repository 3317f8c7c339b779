package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
	"github.com/msb-project/msb/policies"
)

const (
	guestPort = 8080
	connects  = 500
	// clients open and close connections as fast as they can, each with one byte there and back.
	clients = 4
	perSec  = "conns/s"
)

func main() {
	role := flag.String("role", "", "internal: what this process is")
	gvproxy := flag.String("gvproxy", "", "path of a gvproxy; left out if empty")
	qemu := flag.String("qemu", "", "path of a qemu-system-x86_64, for its hostfwd; left out if empty")
	seconds := flag.Float64("seconds", 2, "length of each bulk transfer")
	rounds := flag.Int("rounds", 3, "how often each subject is measured, in turns; the medians count")
	out := flag.String("out", "", "write every value to this file, for benchstat")
	many := flag.Int("many", 1000, "connections that are open at once; each takes a descriptor of the client's process, of the guest's and of the subject")
	at := flag.String("at", "", "internal: where the client connects")
	flag.Parse()
	err := errors.New("this needs root, to make network namespaces")
	switch {
	case *role == "gateway":
		err = serveGateway()
	case *role == "client":
		took, failed := openMany(*at, *many)
		_, err = fmt.Println(took.Seconds(), failed)
	case os.Geteuid() == 0:
		err = compare(peers{{"gvproxy", *gvproxy, startGvproxy, *many}, {"qemu hostfwd", *qemu, startQEMU, 0}}, *out, *rounds, *many, time.Duration(*seconds*float64(time.Second)))
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

// result is of one subject: bytes per second, the median of a connection with one byte there and back, how many of
// these some clients open in a second, and how long many connections took that were open at once.
type result struct {
	down, up float64
	connect  time.Duration
	perSec   float64
	many     time.Duration
	failed   int
}

func compare(others peers, out string, rounds, many int, bulk time.Duration) error {
	subjects := []peer{{name: figures.OfMsb, begin: startMsb, many: many}}
	for _, p := range others {
		if p.path != "" {
			subjects = append(subjects, p)
		}
	}
	var set figures.Set
	atOnce := strconv.Itoa(many) + " at once"
	for range rounds {
		for _, s := range subjects {
			r, err := measure(s, bulk)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			set.Add("Ports/down", s.name, figures.Rate, r.down)
			set.Add("Ports/up", s.name, figures.Rate, r.up)
			set.Add("Ports/connect+1B", s.name, figures.Seconds, r.connect.Seconds())
			set.Add("Ports/connects", s.name, perSec, r.perSec)
			if s.many > 0 {
				set.Add("Ports/"+atOnce, s.name, figures.Seconds, r.many.Seconds())
				set.Add("Ports/"+atOnce, s.name, "failures", float64(r.failed))
			}
		}
	}
	fmt.Printf("%-12s  %12s  %12s  %12s  %12s  %s\n", "", "down MB/s", "up MB/s", "connect", "connects/s", atOnce)
	for _, s := range subjects {
		mid := func(series, unit string) float64 { return figures.Median(set.Values("Ports/"+series, s.name, unit)) }
		fmt.Printf("%-12s  %12.0f  %12.0f  %10.0fµs  %12.0f", s.name, mid("down", figures.Rate)/1e6, mid("up", figures.Rate)/1e6,
			mid("connect+1B", figures.Seconds)*1e6, mid("connects", perSec))
		if s.many > 0 {
			fmt.Printf("  %.0fms, %.0f failed", mid(atOnce, figures.Seconds)*1e3, mid(atOnce, "failures"))
		}
		fmt.Println()
	}
	return set.WriteFile(out)
}

// measure starts a subject between a guest's server and this process, and drives it.
func measure(subject peer, bulk time.Duration) (f result, err error) {
	mtu := netstack.DefaultMTU
	if subject.name == figures.OfMsb {
		mtu = netstack.LargeMTU
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
	link, at, stop, err := subject.begin(subject.path, cfg.Guest4)
	if err != nil {
		return f, err
	}
	defer stop()
	g.Bridge(link)
	return drive(at, subject.many, bulk)
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

func startMsb(string, netip.Addr) (link net.Conn, at string, stop func(), err error) {
	far, link, err := linkPair()
	if err != nil {
		return nil, "", nil, err
	}
	defer func() { _ = far.Close() }()
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
	if err != nil {
		stop()
		return nil, "", nil, err
	}
	return link, strings.TrimSpace(line), stop, nil
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
	if f.perSec, err = connectFor(at, bulk); err == nil {
		f.many, f.failed, err = openApart(at, many)
	}
	return f, err
}

// openApart is openMany in a process of its own: this one has the server's half of each connection, and would need two
// descriptors for each.
func openApart(at string, many int) (took time.Duration, failed int, err error) {
	if many == 0 {
		return 0, 0, nil
	}
	cmd := exec.Command("/proc/self/exe", "-role", "client", "-at", at, "-many", strconv.Itoa(many))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("the client: %w", err)
	}
	var seconds float64
	if _, err := fmt.Sscan(string(out), &seconds, &failed); err != nil {
		return 0, 0, fmt.Errorf("the client said %q: %w", out, err)
	}
	return time.Duration(seconds * float64(time.Second)), failed, nil
}

// connectFor returns how many connections were opened and closed per second.
func connectFor(at string, bulk time.Duration) (float64, error) {
	var n atomic.Int64
	var group errgroup.Group
	begin := time.Now()
	for range clients {
		group.Go(func() error {
			for time.Since(begin) < bulk {
				c, err := ask(at)
				if err != nil {
					return err
				}
				_ = c.Close()
				n.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(n.Load()) / time.Since(begin).Seconds(), err
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
