package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/internal/pcapgen"
)

// perPacket is the unit of what reading a capture costs.
const perPacket = "cpu-sec/packet"

// packetsEach are those of a flow of pcapgen.Many.
const packetsEach = 10

const policy = `version = 1
[[egress.allow]]
name = "web"
hosts = ["good.example"]
ports = [443]
protocol = "tls"
`

// captures measures reviews of captures of 100 to most flows.
func captures(ctx context.Context, msb string, rounds, most int, set *figures.Set) error {
	if msb == "" {
		return nil
	}
	dir, err := os.MkdirTemp("", "bench-growth-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rules := filepath.Join(dir, "policy.toml")
	if err := os.WriteFile(rules, []byte(policy), 0o600); err != nil {
		return err
	}
	file := filepath.Join(dir, "many.pcapng")
	for _, n := range []int{100, 1000, 10_000, 60_000} {
		if n > most {
			break
		}
		if err := os.WriteFile(file, pcapgen.Many(n), 0o600); err != nil {
			return err
		}
		what := fmt.Sprintf("Growth/captures/n=%d", n*packetsEach)
		for range rounds {
			for _, side := range []struct {
				name string
				argv []string
			}{
				{figures.OfMsb, []string{msb, "review", "--policy", rules, file}},
				{"tshark", []string{"tshark", "-n", "-q", "-z", "conv,tcp", "-r", file}},
			} {
				took, err := cpu(ctx, append(os.Environ(), "MSB_HOME="+dir+"/home"), side.argv)
				if err != nil {
					return err
				}
				set.Add(what, side.name, perPacket, took/float64(n*packetsEach))
			}
		}
		fmt.Printf("%7d packets, CPU s/packet: msb review %s, tshark %s\n", n*packetsEach,
			figures.Text("%.2g", set.Values(what, figures.OfMsb, perPacket)), figures.Text("%.2g", set.Values(what, "tshark", perPacket)))
	}
	return nil
}

// cpu is the processor time of a command that must succeed, in seconds.
func cpu(ctx context.Context, env, argv []string) (float64, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = env
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", argv[0], err, said.String())
	}
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), nil
}
