package childctl

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/msb-project/msb/agentd/agentpb"
)

// The exit codes that are not a child's program's own, as of `msb exec`.
const (
	exitUsage  = 2
	exitFailed = 125
)

const usage = `usage: msb-ctl VERB, for children of this sandbox within its budget:
  ping                              what the budget is, and what of it is used
  spawn [FLAGS]                     make and start a child; prints its name
  list                              the children, as JSON
  exec NAME -- COMMAND [ARG...]     run a command in a child
  destroy NAME                      stop a child and delete its files
  run [FLAGS] -- COMMAND [ARG...]   spawn, exec and destroy
FLAGS of spawn and run; what is left out is this sandbox's:
  --image REF  --cpus N  --memory-mib N
  --allow HOST[:PORT]  --policy FILE  --no-network   (narrower than this sandbox's policy)
`

// Run is msb-ctl with these arguments. It returns its exit code.
func Run(args []string, socket string, stdout, stderr io.Writer) int {
	req, err := parse(args)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(stderr, "msb-ctl: %v\n", err)
		}
		_, _ = io.WriteString(stderr, usage)
		return exitUsage
	}
	code, err := ask(req, socket, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "msb-ctl: %v\n", err)
		return exitFailed
	}
	return code
}

// list is a flag that may come several times.
type list []string

// String implements flag.Value.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func parse(args []string) (*agentpb.ChildRequest, error) {
	if len(args) == 0 {
		return nil, flag.ErrHelp
	}
	r := &agentpb.ChildRequest{Verb: args[0]}
	fs := flag.NewFlagSet(r.Verb, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	file := ""
	args = args[1:]
	switch r.Verb {
	case agentpb.ChildSpawn, agentpb.ChildRun:
		fs.StringVar(&r.Image, "image", "", "")
		fs.IntVar(&r.CPUs, "cpus", 0, "")
		fs.Int64Var(&r.MemoryMiB, "memory-mib", 0, "")
		fs.Var((*list)(&r.Allow), "allow", "")
		fs.StringVar(&file, "policy", "", "")
		fs.BoolVar(&r.NoNetwork, "no-network", false, "")
	case agentpb.ChildExec, agentpb.ChildDestroy:
		if len(args) == 0 || strings.HasPrefix(args[0], "-") {
			return nil, errors.New(r.Verb + " wants a child's name")
		}
		r.Name, args = args[0], args[1:]
	case agentpb.ChildPing, agentpb.ChildList:
	default:
		return nil, fmt.Errorf("there is no verb %q", r.Verb)
	}
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	r.Argv = fs.Args()
	if commands := r.Verb == agentpb.ChildExec || r.Verb == agentpb.ChildRun; commands != (len(r.Argv) > 0) {
		if commands {
			return nil, errors.New(r.Verb + " wants a command")
		}
		return nil, fmt.Errorf("%s takes no %q", r.Verb, r.Argv[0])
	}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		policy := string(text)
		r.Policy = &policy
	}
	return r, nil
}

// ask sends the request and passes on what comes for it.
func ask(r *agentpb.ChildRequest, socket string, stdout, stderr io.Writer) (int, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	if len(line) >= agentpb.MaxChildRequest {
		return 0, fmt.Errorf("a request of %d bytes; give at most %d", len(line), agentpb.MaxChildRequest-1)
	}
	c, err := net.Dial("unix", socket) //nolint:forbidigo,noctx // of the guest's own kernel, which answers at once
	if err != nil {
		return 0, fmt.Errorf("%w; a sandbox has children only with a budget, and only the user of its image and root may ask for them", err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write(append(line, '\n')); err != nil {
		return 0, err
	}
	for d := json.NewDecoder(c); ; {
		var reply agentpb.ChildReply
		if err := d.Decode(&reply); err != nil {
			return 0, fmt.Errorf("no answer: too many requests are under way, or the sandbox ends (%w)", err)
		}
		switch {
		case reply.Error != "":
			return 0, errors.New(reply.Error)
		case reply.Exit != nil:
			return *reply.Exit, nil
		case reply.Result != nil:
			if *reply.Result != "" {
				_, err = fmt.Fprintln(stdout, *reply.Result)
			}
			return 0, err
		case len(reply.Stderr) > 0:
			_, err = stderr.Write(reply.Stderr)
		default:
			_, err = stdout.Write(reply.Stdout)
		}
		if err != nil {
			return 0, err
		}
	}
}
