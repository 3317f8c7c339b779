package main

const (
	noVolumes   = "-v HOST:GUEST shares a directory of this machine, -v NAME:GUEST is a volume (msb volume), and --disk 10G keeps what a guest writes on a disk of its own"
	noPorts     = "name each port: -p HOSTPORT:PORT"
	noCaps      = "the guest's root has every right in its own machine, and none outside of it; leave it out"
	noDevices   = "a guest gets no device of this machine; leave it out"
	noNetworks  = "the only network is msb's gateway: --no-net is none at all, --allow HOST:PORT and --policy FILE let things out"
	noNamespace = "a guest has a kernel of its own, and shares no namespace and no control group with this machine; leave it out"
	noHealth    = "msb checks no health; leave it out"
	noThrottle  = "msb does not bound how fast a guest reads and writes; leave it out"
	noLogDriver = "msb keeps the output of -d itself: msb logs NAME; leave it out"
	wholeCPUs   = "--cpus N gives the guest N processors"
	ownMemory   = "--memory SIZE is all that the guest has, and no swap; leave it out"
	ownLink     = "each guest has a link of its own, with the same addresses; leave it out"
	betweenTwo  = "a line of the policy's [hosts] leads to another sandbox, if that one's policy lets this one in: see docs/ports.md"
	dnsServers  = "a policy's [dns] servers are asked: see docs/policy.md"
	growLater   = "msb update NAME changes --cpus and --memory from the next start on; leave it out"
)

// otherFlags are flags of other tools' run for which msb has no counterpart, or one with another name.
var otherFlags = map[string]string{
	// Files and devices.
	"volumes-from": noVolumes, "mount": noVolumes + ", --tmpfs PATH mounts a file system in memory",
	"volume-driver": "volumes are disks of this machine; leave it out",
	"device":        noDevices, "gpus": noDevices, "device-cgroup-rule": noDevices,
	"use-api-socket": "a guest gets no socket of this machine; leave it out",
	"storage-opt":    "--disk 10G puts what the guest writes on a disk of this size",
	"shm-size":       "/dev/shm takes up to half of the guest's memory: give it more with --memory",

	// Network.
	"P": noPorts, "publish-all": noPorts, "expose": noPorts,
	"network": noNetworks, "net": noNetworks, "link": betweenTwo, "network-alias": betweenTwo, "net-alias": betweenTwo,
	"ip": ownLink, "ip6": ownLink, "link-local-ip": ownLink, "mac-address": ownLink,
	"dns": dnsServers, "dns-opt": dnsServers, "dns-option": dnsServers,
	"dns-search": "names are looked up as the guest writes them; leave it out",
	"domainname": "--hostname NAME.DOMAIN is both",

	// Rights and namespaces.
	"privileged": noCaps, "cap-add": noCaps,
	"cap-drop":     "a guest is confined by its machine, not by capabilities; --user NAME runs as somebody else than root",
	"security-opt": "a guest is confined by its machine, and the machine by msb: `msb doctor` says how; leave it out",
	"group-add":    "--user USER:GROUP says the group",
	"sysctl":       "root of the guest sets it, in its own kernel: sysctl -w NAME=VALUE",
	"userns":       noNamespace, "pid": noNamespace, "ipc": noNamespace, "uts": noNamespace, "cgroupns": noNamespace, "cgroup-parent": noNamespace,
	"isolation": noNamespace, "runtime": "--vm chooses what runs the machine: auto, krun or qemu",

	// Processors, memory and bounds.
	"c": wholeCPUs, "cpu-shares": wholeCPUs, "cpuset-cpus": wholeCPUs, "cpuset-mems": wholeCPUs, "cpu-period": wholeCPUs, "cpu-quota": wholeCPUs,
	"cpu-rt-period": wholeCPUs, "cpu-rt-runtime": wholeCPUs, "cpu-count": wholeCPUs, "cpu-percent": wholeCPUs,
	"memory-swap": "a guest has no swap; give it more with --memory", "memory-reservation": ownMemory, "memory-swappiness": ownMemory, "kernel-memory": ownMemory,
	"oom-kill-disable": ownMemory, "oom-score-adj": ownMemory,
	"pids-limit":   "the processes are the guest's own, and none of this machine's; leave it out",
	"rlimit":       "use --ulimit NAME=SOFT[:HARD]",
	"blkio-weight": noThrottle, "blkio-weight-device": noThrottle, "device-read-bps": noThrottle, "device-read-iops": noThrottle,
	"device-write-bps": noThrottle, "device-write-iops": noThrottle, "io-maxbandwidth": noThrottle, "io-maxiops": noThrottle,

	// The image, the name and the end.
	"platform":              "guests have this machine's architecture; leave it out",
	"disable-content-trust": "NAME@sha256:… holds an image to its digest; leave it out",
	"cidfile":               "give the sandbox a name: --name NAME",
	"label-file":            "write --label KEY=VALUE for each line", "annotation": "use --label KEY=VALUE",
	"attach": "output is attached always; -i passes standard input on", "a": "output is attached always; -i passes standard input on",
	"sig-proxy":   "signals go to the command; leave it out",
	"stop-signal": "msb stop has the guest end; msb kill -s SIGNAL sends the command one", "stop-timeout": stopWait,
	"log-driver": noLogDriver, "log-opt": noLogDriver,
	"no-healthcheck": noHealth, "health-cmd": noHealth, "health-interval": noHealth, "health-retries": noHealth, "health-start-period": noHealth,
	"health-start-interval": noHealth, "health-timeout": noHealth,

	// microsandbox's.
	"n": "use --name NAME", "H": "use --hostname NAME", "root-disk": "use --disk 10G", "conf": "use --policy FILE for what is let out, and flags for the rest",
	"mount-named": "use -v NAME:GUEST", "mount-disk": "-v NAME:GUEST is a volume, a disk with a file system", "mount-file": "--copy HOST:GUEST of msb run and msb cp copy a file; -v HOST:GUEST shares a directory",
	"net-rule": "use --allow HOST:PORT, or a rule of --policy FILE", "net-default": "nothing is let out but what --allow and --policy FILE say; leave it out",
	"tls-intercept": "connections are read where a rule of the policy needs it; leave it out", "tls-upstream-ca-cert": "use [[tls.extra_ca]] of the policy: see docs/policy.md",
	"dns-nameserver": dnsServers, "proxy": "use [tls] via of the policy, for HTTP proxies: see docs/policy.md",
	"no-dns-rebind-protection": "use within of a rule: see docs/policy.md", "max-cpus": growLater, "max-memory": growLater,
}
