package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/msb-project/msb/shim/node"
)

// Where the operator's files are looked at again: kubelet writes a changed ConfigMap within a minute.
const followEvery = 10 * time.Second

// uninstallWait bounds what is done once the pod is told to end.
const uninstallWait = 2 * time.Minute

const usage = `msb-node installs msb's runtime on this node, and takes it away again.

usage: msb-node [flags] run|install|uninstall|check

  run        install, follow the files of --config, and uninstall when it is told to end
  install    once
  uninstall  take it away again, unless machines of pods still run
  check      exit 1 if something of it is missing, or another version's

`

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatalf("msb-node: %v", err)
	}
}

func run(ctx context.Context) error {
	n := node.Node{Root: "/", Say: log.Printf}
	flags := flag.NewFlagSet("msb-node", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage); flags.PrintDefaults() }
	host := flags.String("host", "/host", "where the node's root directory is mounted")
	parts := flags.String("parts", "/opt/msb", "what is installed: its directories bin and lib")
	config := flags.String("config", "/config", "the operator's floor.toml and shim.toml")
	flags.StringVar(&n.Prefix, "prefix", "/opt/msb", "the node's directory for all of msb's files")
	flags.StringVar(&n.Containerd, "containerd-config", "/etc/containerd/config.toml", "the node's configuration of containerd")
	flags.StringVar(&n.DropIn, "drop-in", "/etc/containerd/conf.d/msb.toml", "the file that it imports")
	restart := flags.String("restart", "systemctl restart containerd", "how containerd is restarted on the node")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() != 1:
		return errors.New("name one of run, install, uninstall and check; see --help")
	}
	n.Restart = strings.Fields(*restart)
	if len(n.Restart) == 0 {
		return errors.New("--restart is empty; write the command that restarts containerd")
	}
	if err := n.Enter(*host, *parts, *config); err != nil {
		return err
	}
	switch command := flags.Arg(0); command {
	case "run":
		return follow(ctx, &n)
	case "install":
		return n.Install(ctx)
	case "uninstall":
		return n.Uninstall(ctx)
	case "check":
		return n.Check()
	default:
		return fmt.Errorf("%q is no command; name one of run, install, uninstall and check", command)
	}
}

// follow installs, and uninstalls at SIGTERM.
func follow(ctx context.Context, n *node.Node) error {
	ended, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := n.Install(ended); err != nil {
		return err
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			changed, err := n.Configure()
			if err != nil {
				n.Say("the operator's files: %v", err)
			} else if changed {
				n.Say("the operator's files are in force for pods that start from now on")
			}
		case <-ended.Done():
			stop()
			ctx, cancel := context.WithTimeout(ctx, uninstallWait)
			defer cancel()
			return n.Uninstall(ctx)
		}
	}
}
