package main

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// laterVerbs are the commands for a sandbox that has been made already.
var laterVerbs = []string{"start", "restart", "exec", "shell", "attach", "update"}

// laterFlags say how to change later what a flag of msb run decides when the sandbox is made.
var laterFlags = map[string]string{
	"env": "msb env set NAME VARIABLE=VALUE sets one, while the sandbox is stopped", "env-file": "msb env set NAME VARIABLE=VALUE sets one, while the sandbox is stopped",
	"publish": "msb port add NAME HOSTPORT:PORT publishes one, while it runs too",
	"label":   "use msb update", "cpus": "use msb update", "memory": "use msb update", "restart": "use msb update", "idle-timeout": "use msb update",
	"max-duration": "use msb update",
	"name":         "msb rename NAME NEW gives a sandbox that is stopped another name", "copy": "msb cp copies files into it",
	"rm":         "msb rm NAME removes it",
	"entrypoint": "msb exec NAME -- PROGRAM runs any program",
	"workdir":    "msb exec -w DIRECTORY NAME -- PROGRAM runs one there", "user": "msb exec -u USER NAME -- PROGRAM runs one as somebody else",
	"detach": "msb exec -d NAME -- PROGRAM runs one as a job", "timeout": "msb exec --timeout DURATION NAME -- PROGRAM bounds one",
	"ulimit": "msb exec --ulimit NAME=SOFT NAME -- PROGRAM bounds one",
}

// onlyRun are flags of msb run that commands which run nothing, or always in the same way, have no use for.
var onlyRun = map[string]map[string]string{
	"create": {
		"copy": "msb cp copies into it, while it is stopped too", "detach": "it runs in the background once msb start has started it; leave it out",
	},
	"install": {
		"interactive": installedStreams, "tty": installedStreams, "rm": "each call is a new sandbox, which goes when the command ends; leave it out",
		"detach": "the command runs until it ends; msb run -d leaves one running", "copy": "-v HOST:GUEST lets the guest see a directory; msb run copies",
	},
	"shell": {"interactive": shellStreams, "tty": shellStreams},
	"warm":  {},
}

const (
	installedStreams = "standard input is passed on always, with a terminal where there is one; leave it out"
	shellStreams     = "a shell has standard input and a terminal; leave it out"
)

// runsFlag says, of a flag of msb run that another command lacks, what to do in place of it; "" if there is nothing to say.
func runsFlag(c *cobra.Command, path, name string) string {
	later := slices.Contains(laterVerbs, path)
	if _, only := onlyRun[path]; !later && !only {
		return ""
	}
	f := flagOf(find(c.Root(), "run"), name)
	switch {
	case f == nil:
		return ""
	case onlyRun[path][f.Name] != "":
		return onlyRun[path][f.Name]
	case later && laterFlags[f.Name] != "":
		return laterFlags[f.Name]
	case later:
		return "it is for msb run, when the sandbox is made"
	}
	return "it is for msb run alone"
}

// flagOf finds a command's flag by its name or its letter.
func flagOf(c *cobra.Command, name string) *pflag.Flag {
	if len(name) == 1 {
		return c.Flags().ShorthandLookup(name)
	}
	return c.Flags().Lookup(name)
}
