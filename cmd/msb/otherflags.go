package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// verbFlags are flags that other tools have for a command, by its words behind msb.
var verbFlags = map[string]map[string]string{
	"ls": {
		"n": allListed, "l": allListed, "latest": allListed, "last": allListed, "s": sizeListed, "size": sizeListed,
	},
	"stop":    {"t": stopWait, "time": stopWait, "timeout": stopWait, "f": stopWait, "force": stopWait, "s": stopSignal, "signal": stopSignal, "label": labelFilter},
	"restart": {"t": stopWait, "time": stopWait, "timeout": stopWait, "s": stopSignal, "signal": stopSignal, "label": labelFilter},
	"start": {
		"a": startAttach, "attach": startAttach, "i": startAttach, "interactive": startAttach, "detach-keys": startAttach, "label": labelFilter,
		"checkpoint": restoreFirst, "checkpoint-dir": restoreFirst,
	},
	"rm":   {"v": volumesStay, "volumes": volumesStay, "l": betweenTwo, "link": betweenTwo, "label": labelFilter},
	"kill": {"label": labelFilter},
	"events": {
		"n": wholeLog, "tail": wholeLog, "since": wholeLog, "until": wholeLog, "format": "--json prints an object a line; pipe it into jq",
	},
	"logs": {"until": "--since is the other end; pipe --json into jq for more", "details": "leave it out", "source": "it is the main command's output; msb job logs has that of msb exec -d"},
	"exec": {"stream": "use -i"},
	"create": {
		"name": "the name stands alone, without a flag", "i": noCommandYet, "interactive": noCommandYet, "t": noCommandYet, "tty": noCommandYet,
		"u": noCommandYet, "user": noCommandYet, "w": noCommandYet, "workdir": noCommandYet, "entrypoint": noCommandYet, "ulimit": noCommandYet,
		"a": noCommandYet, "attach": noCommandYet, "rm": "a sandbox of msb run goes when its command ends; msb rm NAME removes this one",
	},
	"ssh": {
		"L": sshFlag, "D": sshFlag, "R": sshFlag, "A": sshFlag, "X": sshFlag, "Y": sshFlag, "W": sshFlag, "N": sshFlag,
		"i": sshFlag, "l": sshFlag, "o": sshFlag, "F": sshFlag, "p": sshFlag, "v": sshFlag,
	},
	"login":   {"p": passwordSeen, "password": passwordSeen},
	"inspect": {"s": "the size of its disk is in it; leave it out", "size": "the size of its disk is in it; leave it out", "type": "msb image inspect, msb volume inspect and msb snapshot inspect are for the others"},
	"commit": {
		"m": noNotes, "message": noNotes, "a": noNotes, "author": noNotes, "c": sameConfig, "change": sameConfig,
		"p": noPause, "pause": noPause, "no-pause": noPause,
	},
	"cp": {
		"r": wholeDirs, "R": wholeDirs, "recursive": wholeDirs,
		"p": "modes and times are kept always, and owners with --archive",
	},
	"stats":   {"a": "it is of those that run; leave it out", "all": "it is of those that run; leave it out", "no-trunc": noTrunc},
	"top":     {"o": fixedColumns, "e": fixedColumns, "f": fixedColumns, "x": fixedColumns, "u": fixedColumns},
	"prune":   {"a": pruneAll, "all": pruneAll, "filter": pruneList, "volumes": "msb volume prune removes volumes"},
	"install": {"tmp": "each call is a new sandbox; leave it out"},

	"image pull":    {"a": nameEach, "all-tags": nameEach, "platform": otherFlags["platform"], "disable-content-trust": otherFlags["disable-content-trust"]},
	"image ls":      {"digests": "digests are in the list; --json has them whole", "f": pipeList, "filter": pipeList, "no-trunc": "--json has the whole digests", "tree": "an image is of one platform; leave it out"},
	"image rm":      {"f": "names of an image are forgotten one by one, and a disk that a sandbox needs stays; leave it out", "force": "names of an image are forgotten one by one, and a disk that a sandbox needs stays; leave it out", "no-prune": "an image has no parents; leave it out", "platform": otherFlags["platform"]},
	"image prune":   {"a": pruneAll, "all": pruneAll, "filter": pruneList},
	"image inspect": {"platform": otherFlags["platform"]},
	"image history": {"H": "times and sizes are written for people; --json has them exact", "human": "times and sizes are written for people; --json has them exact", "q": "the cache keeps no images between the steps; use --format", "quiet": "the cache keeps no images between the steps; use --format", "platform": otherFlags["platform"]},
	"image load":    {"platform": otherFlags["platform"]},
	"image save":    {"platform": otherFlags["platform"]},

	"volume create": {"name": "the name stands alone, without a flag", "d": localDisk, "driver": localDisk, "o": localDisk, "opt": localDisk, "label": "volumes have no labels; leave it out"},
	"volume ls":     {"f": pipeList, "filter": pipeList, "cluster": "volumes are of this machine; leave it out"},
	"volume prune":  {"a": "those with names are removed too; leave it out", "all": "those with names are removed too; leave it out", "filter": pruneList},
	"volume rm":     {"f": "stop the sandboxes that have it first; leave it out", "force": "stop the sandboxes that have it first; leave it out"},

	"snapshot create": {"from-sandbox": "the sandbox stands first: msb snapshot create SANDBOX [NAME]", "full": "use --memory"},
}

const (
	volumesStay  = "volumes have names, and stay: msb volume rm NAME, or msb volume prune"
	allListed    = "all sandboxes that have a name are listed, running or not; leave it out"
	noTrunc      = "nothing is cut off; leave it out"
	sizeListed   = "the disk's size is in the list; leave it out"
	stopWait     = "the guest is given time to write its disk, and is ended then; leave it out"
	stopSignal   = "msb kill -s SIGNAL NAME sends the command of msb run -d a signal"
	startAttach  = "msb attach NAME joins the command of msb run -d, msb shell NAME opens a shell"
	restoreFirst = "msb snapshot restore SNAPSHOT comes before msb start"
	noCommandYet = "it is for commands, and msb create runs none: give it to msb exec, once the sandbox is started"
	labelFilter  = "use --filter label=KEY=VALUE"
	sshFlag      = "flags of ssh itself go with ssh NAME.msb, once msb ssh-config > ~/.ssh/msb.conf is included"
	wholeLog     = "the log is shown from its oldest line on; pipe it into tail, or --json into jq"
	noNotes      = "images of the cache have no message and no author; leave it out"
	sameConfig   = "the image keeps the command, variables and user of the sandbox's own; msb run has flags for others"
	noPause      = "the sandbox runs on, and its disk is held for a moment; leave it out"
	fixedColumns = "every process is listed, with fixed columns; msb exec NAME ps shows others, if the image has it"
	pruneAll     = "msb image rm IMAGE forgets an image by its name; leave it out"
	pruneList    = "--dry-run lists what would go; remove others by their names"
	nameEach     = "name each image"
	pipeList     = "pipe --json into jq"
	localDisk    = "a volume is a disk of this machine, of the size that --size says; leave it out"
	passwordSeen = "other users see a command line; use --password-stdin, as in: msb login --username USER --password-stdin SERVER < FILE"
	wholeDirs    = "directories are always copied with what they hold; leave it out"
)

// runLike are the commands with flags of docker run.
var runLike = []string{"run", "create", "exec", "install", "warm", "update"}

// sakeOfDocker adds a flag that asks for what is done without it.
func sakeOfDocker(c *cobra.Command, name, short, why string) {
	c.Flags().BoolP(name, short, false, "for docker's sake: "+why+", with and without this")
}

const (
	asksNothing = "nothing is asked"
	listsAll    = "all are listed"
)

// otherFlag says what to do instead of a flag that other tools have.
func otherFlag(c *cobra.Command, name string) string {
	path := strings.TrimPrefix(c.CommandPath(), "msb ")
	if text := verbFlags[path][name]; text != "" {
		return text
	}
	if text := otherFlags[name]; text != "" && slices.Contains(runLike, path) {
		return text
	}
	if name == "p" && c.Flags().Lookup("policy") != nil {
		return "for a policy file use --policy FILE; -p publishes ports, for msb run and msb create"
	}
	return runsFlag(c, path, name)
}
