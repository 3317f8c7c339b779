package agentclient

import (
	"net"
	"net/netip"
	"time"
)

// Options say how a session is opened. The zero value sets only the guest's clock and its
// randomness.
type Options struct {
	// HandshakeTimeout bounds Dial; 0 means agentpb.HandshakeTimeout.
	HandshakeTimeout time.Duration

	// Hostname of the guest; empty keeps the kernel's.
	Hostname string

	// Network is nil for a guest without a network device.
	Network *Network

	// Root is nil for an agent that runs processes in its own root: tests.
	Root *Root

	// CAPEM holds certificates in PEM form that the guest trusts besides its
	// image's own.
	CAPEM []byte

	// TrustEnv sets SSL_CERT_FILE and its like for every process.
	TrustEnv bool

	// Restored says that the machine is a copy of a saved one. Without new
	// randomness the handshake fails then.
	Restored bool

	// NewIdentity says that the disk is a copy of another sandbox's: the guest renews what
	// tells machines apart.
	NewIdentity bool

	// ForgetPEM holds certificates in PEM form that the guest removes from its trust stores.
	ForgetPEM []byte

	// Env holds defaults for the environment of every process: KEY=value.
	Env []string

	// ResumeKey, of agentpb.ResumeKeyBytes random bytes, is for Rejoin, if the machine is saved during the session. Nil for
	// a machine that is not.
	ResumeKey []byte

	// Resumed is for a stream of Rejoin. Of the other options Env, TrustEnv, Network and ResumeKey count then. Without new
	// randomness the handshake fails.
	Resumed bool
}

// Network is the guest's side of its one link.
type Network struct {
	MAC       net.HardwareAddr
	Addresses []netip.Prefix
	// Gateways holds at most one address for each family, which need not be in a prefix of Addresses.
	Gateways   []netip.Addr
	DNSServers []netip.Addr
	// MTU in bytes; 0 keeps the device's.
	MTU int
	// Hosts are further lines of /etc/hosts.
	Hosts []HostEntry
}

// HostEntry is a line of /etc/hosts.
type HostEntry struct {
	Address netip.Addr
	Names   []string
}

// Disk names a block device by its virtio serial or, if it has none, by the guest kernel's name
// for it ("vdb").
type Disk struct {
	Serial string
	Device string
}

// Root is the guest's root: the image below, an upper layer for writes above.
type Root struct {
	Image Disk
	// Transfer is a disk without a file system for what both ends send (internal/transfer); the zero value means none.
	Transfer Disk
	// UpperDisk is an ext4 disk for writes. The zero value means memory.
	UpperDisk Disk
	// UpperMemoryBytes bounds the upper layer in memory; 0 means half of the
	// guest's memory.
	UpperMemoryBytes int64
	// Tmpfs are mounted in this order; MakeDirs are made where they are missing.
	Tmpfs    []Tmpfs
	MakeDirs []string
	// Volumes are mounted in this order, behind Tmpfs.
	Volumes []Volume
	// Caches are mounted in this order, behind Volumes, in the home of CacheUser (as
	// ExecOptions.User). CacheDisk is below them; the zero value is none.
	Caches    []Cache
	CacheDisk Disk
	CacheUser string
	// ReadOnly makes the root read-only once all that is of msb is in it.
	ReadOnly bool
}

// Volume is a disk with an ext4 file system.
type Volume struct {
	Disk     Disk
	Path     string
	ReadOnly bool
}

// Cache is a directory of a tool's cache: an overlay of the directory Key of
// Root.CacheDisk, and of what the guest writes.
type Cache struct {
	Key string
	// Path is absolute, or begins with "~/".
	Path string
}

// Tmpfs is a file system in the guest's memory.
type Tmpfs struct {
	Path string
	// Size in bytes; 0 means half of the memory.
	Size int64
	// Mode is nil for that of the directory below, 01777 where there is none.
	Mode *uint32
	// Exec lets programs in it run.
	Exec bool
}

// Info is what the guest reported at the handshake. A hostile guest may lie.
type Info struct {
	// Version is the protocol version that both ends use.
	Version      uint32
	AgentVersion string
	Kernel       string
	// Warnings are sentences on what could not be configured.
	Warnings []string
	// ClockBehind is how far the guest's clock may be behind this machine's since the handshake; below zero it is ahead.
	ClockBehind time.Duration
}

// Stats is what the guest says it uses. It is the guest's word only.
type Stats struct {
	MemoryTotalBytes     int64
	MemoryAvailableBytes int64
	Uptime               time.Duration
	// CPUBusy is the processors' time that was not idle, summed, since boot.
	CPUBusy   time.Duration
	Processes int
	Execs     int
	MaxExecs  int
	// OOMKills counts processes that the kernel killed for lack of memory.
	OOMKills int64
	// Clock is the guest's wall clock.
	Clock time.Time
	// RootTotalBytes and RootAvailableBytes are of the root that processes see.
	RootTotalBytes, RootAvailableBytes int64
}
