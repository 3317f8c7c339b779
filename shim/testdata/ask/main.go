package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	client := &http.Client{Timeout: time.Minute}
	for _, url := range os.Args[1:] {
		do := ask
		switch {
		case strings.HasPrefix(url, "udp://"):
			do = askUDP
		case strings.HasPrefix(url, "serve-udp://"):
			do = serveUDP
		}
		if err := do(client, url); err != nil {
			fmt.Println("no")
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func ask(client *http.Client, url string) error {
	q, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	if key := os.Getenv("KEY"); key != "" {
		q.Header.Set("Authorization", "Bearer "+key)
	}
	r, err := client.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, r.Status)
	}
	_, err = io.Copy(os.Stdout, r.Body)
	return err
}

// askUDP sends a datagram, and prints the one that comes back.
func askUDP(client *http.Client, url string) error {
	c, err := net.Dial("udp", strings.TrimPrefix(url, "udp://"))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(client.Timeout / 6))
	if _, err := c.Write([]byte("asked\n")); err != nil {
		return err
	}
	b := make([]byte, 1500)
	n, err := c.Read(b)
	_, _ = os.Stdout.Write(b[:n])
	return err
}

// serveUDP answers each datagram with its client's address, forever.
func serveUDP(_ *http.Client, url string) error {
	c, err := net.ListenPacket("udp", strings.TrimPrefix(url, "serve-udp://"))
	if err != nil {
		return err
	}
	for b := make([]byte, 1500); ; {
		_, from, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		client, _, err := net.SplitHostPort(from.String())
		if err == nil {
			_, err = c.WriteTo([]byte(client+"\n"), from)
		}
		if err != nil {
			return err
		}
	}
}
