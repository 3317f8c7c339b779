package main

import (
	"github.com/spf13/cobra"
)

const (
	noVolumes = "-v HOST:GUEST shares a directory of this machine, -v NAME:GUEST is a volume (msb volume), and --disk 10G keeps what a guest writes on a disk of its own"
	noPorts   = "name each port: -p HOSTPORT:PORT"
	noCaps    = "the guest's root has every right in its own machine, and none outside of it; leave it out"
	noDevices = "a guest gets no device of this machine; leave it out"
)

// otherFlags are flags of container tools for which msb has no counterpart, or one with another name.
var otherFlags = map[string]string{
	"volumes-from": noVolumes, "mount": noVolumes + ", --tmpfs PATH mounts a file system in memory",
	"P": noPorts, "publish-all": noPorts, "expose": noPorts,
	"network":      "the only network is msb's gateway: --no-net is none at all, --allow HOST:PORT and --policy FILE let things out",
	"net":          "the only network is msb's gateway: --no-net is none at all, --allow HOST:PORT and --policy FILE let things out",
	"dns":          "a policy's [dns] servers are asked: see docs/policy.md",
	"privileged":   noCaps,
	"cap-add":      noCaps,
	"cap-drop":     "a guest is confined by its machine, not by capabilities; --user NAME runs as somebody else than root",
	"security-opt": "a guest is confined by its machine, and the machine by msb: `msb doctor` says how; leave it out",
	"device":       noDevices,
	"gpus":         noDevices,
	"platform":     "guests have this machine's architecture; leave it out",
	"cidfile":      "give the sandbox a name: --name NAME",
	"shm-size":     "/dev/shm takes up to half of the guest's memory: give it more with --memory",
	"memory-swap":  "a guest has no swap; give it more with --memory",
	"c":            "--cpus N gives the guest N processors",
	"cpu-shares":   "--cpus N gives the guest N processors",
	"cpuset-cpus":  "--cpus N gives the guest N processors",
	"storage-opt":  "--disk 10G puts what the guest writes on a disk of this size",
	"rlimit":       "use --ulimit NAME=SOFT[:HARD]",
	"attach":       "output is attached always; -i passes standard input on",
	"a":            "output is attached always; -i passes standard input on",
	"link":         "a line of the policy's [hosts] leads to another sandbox, if that one's policy lets this one in: see docs/ports.md",
}

// copyFlags are those of cp.
var copyFlags = map[string]string{
	"r": wholeDirs, "R": wholeDirs, "recursive": wholeDirs,
	"p": "modes and times are kept always, and owners with --archive",
}

// verbFlags are those of the other verbs.
var verbFlags = map[string]map[string]string{
	"ls": {
		"a": allListed, "all": allListed, "n": allListed, "l": allListed, "latest": allListed, "last": allListed, "no-trunc": allListed,
		"s": "the disk's size is in the list",
	},
	"stop":    {"t": stopWait, "time": stopWait, "timeout": stopWait, "s": stopSignal, "signal": stopSignal},
	"restart": {"t": stopWait, "time": stopWait, "timeout": stopWait, "s": stopSignal, "signal": stopSignal},
	"start":   {"a": startAttach, "attach": startAttach, "i": startAttach, "interactive": startAttach},
	"rm":      {"v": volumesStay, "volumes": volumesStay},
	"events":  {"n": wholeLog, "tail": wholeLog, "since": wholeLog, "until": wholeLog, "format": "--json prints an object a line; pipe it into jq"},
	"logs":    {"until": "--since is the other end; pipe --json into jq for more", "details": "leave it out"},
	"exec":    {"privileged": noCaps},
	"create":  {"name": "the name stands alone, without a flag"},
	"ssh": {
		"L": sshFlag, "D": sshFlag, "R": sshFlag, "A": sshFlag, "X": sshFlag, "Y": sshFlag, "W": sshFlag, "N": sshFlag,
		"i": sshFlag, "l": sshFlag, "o": sshFlag, "F": sshFlag, "p": sshFlag, "v": sshFlag,
	},
	"login": {"p": passwordSeen, "password": passwordSeen},
	"run":   {"sig-proxy": "signals go to the command; leave it out", "ip": "each guest has a link of its own, with the same addresses; leave it out", "stop-signal": "msb stop has the guest end; msb kill -s SIGNAL sends the command one"},
	"pull":  {"a": "name each image", "all-tags": "name each image", "platform": "guests have this machine's architecture; leave it out"},
	"commit": {
		"m": noNotes, "message": noNotes, "a": noNotes, "author": noNotes, "c": sameConfig, "change": sameConfig,
		"p": noPause, "pause": noPause, "no-pause": noPause,
	},
	"top":   {"o": fixedColumns, "e": fixedColumns, "f": fixedColumns, "x": fixedColumns, "u": fixedColumns},
	"prune": {"a": pruneAll, "all": pruneAll, "f": "it asks nothing; leave it out", "force": "it asks nothing; leave it out"},
}

const (
	volumesStay  = "volumes have names, and stay: msb volume rm NAME, or msb volume prune"
	allListed    = "all sandboxes that have a name are listed, running or not; leave it out"
	stopWait     = "the guest is given time to write its disk, and is ended then; leave it out"
	stopSignal   = "msb kill -s SIGNAL NAME sends the command of msb run -d a signal"
	startAttach  = "msb attach NAME joins the command of msb run -d, msb shell NAME opens a shell"
	sshFlag      = "flags of ssh itself go with ssh NAME.msb, once msb ssh-config > ~/.ssh/msb.conf is included"
	wholeLog     = "the log is shown from its oldest line on; pipe it into tail, or --json into jq"
	noNotes      = "images of the cache have no message and no author; leave it out"
	sameConfig   = "the image keeps the command, variables and user of the sandbox's own; msb run has flags for others"
	noPause      = "the sandbox runs on, and its disk is held for a moment; leave it out"
	fixedColumns = "every process is listed, with fixed columns; msb exec NAME ps shows others, if the image has it"
	pruneAll     = "msb image rm IMAGE forgets an image by its name; leave it out"
)

const passwordSeen = "other users see a command line; use --password-stdin, as in: msb login --username USER --password-stdin SERVER < FILE"

const wholeDirs = "directories are always copied with what they hold; leave it out"

// otherFlag says what to do instead of a flag that other tools have.
func otherFlag(c *cobra.Command, name string) string {
	if text := verbFlags[c.Name()][name]; text != "" {
		return text
	}
	switch c.Name() {
	case "run", "create", "exec":
		if text := otherFlags[name]; text != "" {
			return text
		}
	case "cp":
		return copyFlags[name]
	}
	if name == "p" && c.Flags().Lookup("policy") != nil {
		return "for a policy file use --policy FILE; -p publishes ports, for msb run and msb create"
	}
	return ""
}
