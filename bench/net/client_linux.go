package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
)

// result is what a client measured. Rates are bytes a second.
type result struct {
	Up1, Up8, Down1, Down8 float64
	UpBytes, DownBytes     float64
	Connects               float64       // a second, one after the other
	ConnectByte            time.Duration // median of connect plus one byte there and back
	UDP                    time.Duration // median round trip
	Grown                  []float64     // down, for each of growth
}

// growth are the flows at once that downloads are measured on with -grow.
var growth = []int{1, 10, 100, 1000, 10000}

// client measures from where it runs and prints its result as JSON. It waits for
// a line on stdin before each part, so that CPU time can be read between.
func client(o options) error {
	var r result
	parts := map[string]func() error{
		"up1":   func() (err error) { r.Up1, err = o.transfer(portSink, 1, push); return err },
		"up8":   func() (err error) { r.Up8, err = o.transfer(portSink, 8, push); return err },
		"down1": func() (err error) { r.Down1, err = o.transfer(portSource, 1, pull); return err },
		"down8": func() (err error) { r.Down8, err = o.transfer(portSource, 8, pull); return err },
		"rest":  func() error { return o.latencies(&r) },
		"idle":  func() error { return o.idle() },
		"grow":  func() error { return o.growFlows(&r) },
	}
	var part string
	for {
		if _, err := fmt.Fscanln(os.Stdin, &part); err != nil {
			return nil
		}
		if err := parts[part](); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	}
}

func (o options) addr(port int) string { return net.JoinHostPort(o.target, strconv.Itoa(o.base+port)) }

// transfer moves bytes on n flows at once and returns the rate.
func (o options) transfer(port, n int, move func(net.Conn, time.Time, []byte) int64) (float64, error) {
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", o.addr(port))
		if err != nil {
			return 0, err
		}
		defer func() { _ = c.Close() }()
		conns[i] = c
	}
	start := time.Now()
	end := start.Add(o.duration())
	moved := make(chan int64, n)
	size := min(bulk, max(4<<10, 64<<20/n)) // of each flow's buffer
	for _, c := range conns {
		go func() { moved <- move(c, end, make([]byte, size)) }()
	}
	var total int64
	for range conns {
		total += <-moved
	}
	return float64(total) / time.Since(start).Seconds(), nil
}

// push writes until end, then waits until the server has read everything.
func push(c net.Conn, end time.Time, buf []byte) (n int64) {
	for time.Now().Before(end) {
		m, err := c.Write(buf)
		n += int64(m)
		if err != nil {
			return n
		}
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, c)
	return n
}

// pull reads until end, or until the other side has ended.
func pull(c net.Conn, end time.Time, buf []byte) (n int64) {
	_ = c.SetReadDeadline(end)
	for time.Now().Before(end) {
		m, err := c.Read(buf)
		n += int64(m)
		if err != nil {
			return n
		}
	}
	return n
}

// growFlows measures downloads on more and more flows at once.
func (o options) growFlows(r *result) error {
	r.Grown = nil
	for _, n := range growth {
		rate, err := o.transfer(portSource, n, pull)
		if err != nil {
			return fmt.Errorf("%d flows: %w", n, err)
		}
		r.Grown = append(r.Grown, rate)
	}
	return nil
}

// idleFlows are held open at once, by three processes: each has fewer
// descriptors than a machine usually allows one.
const idleFlows = 10_000

// idle opens them and keeps them for as long as this process lives.
func (o options) idle() error {
	for i := range idleFlows {
		c, err := net.Dial("tcp", o.addr(portEcho))
		if err != nil {
			return fmt.Errorf("idle flow %d: %w", i, err)
		}
		idle = append(idle, c)
	}
	time.Sleep(time.Second) // what their start took is freed
	return nil
}

// idle keeps the flows reachable: a finalizer would close them.
var idle []net.Conn

const samples = 500

func (o options) latencies(r *result) error {
	var each []time.Duration
	start := time.Now()
	for range samples {
		t := time.Now()
		c, err := net.Dial("tcp", o.addr(portEcho))
		if err != nil {
			return err
		}
		buf := []byte{1}
		_, _ = c.Write(buf)
		if _, err := c.Read(buf); err != nil {
			return err
		}
		each = append(each, time.Since(t))
		_ = c.Close()
	}
	r.Connects = samples / time.Since(start).Seconds()
	r.ConnectByte = figures.MedianTime(each)

	c, err := net.Dial("udp", o.addr(portUDP))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	each = each[:0]
	buf := make([]byte, 64)
	for range 4 * samples {
		t := time.Now()
		_ = c.SetReadDeadline(t.Add(time.Second))
		if _, err := c.Write(buf); err != nil {
			return err
		}
		if _, err := c.Read(buf); err != nil {
			continue // lost: as UDP may be
		}
		each = append(each, time.Since(t))
	}
	if len(each) > 0 {
		r.UDP = figures.MedianTime(each)
	}
	return nil
}
