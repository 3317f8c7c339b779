//go:build linux

package hostdir

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Everything in this file is of include/uapi/linux/fuse.h. The guests are
// little-endian.

const (
	abiMajor = 7
	// abiMinor is what the replies are laid out for. Kernels below 31 are
	// refused: from there on only the longer structures are sent.
	abiMinor    = 38
	abiMinMinor = 31

	headerBytes = 40 // fuse_in_header
	replyBytes  = 16 // fuse_out_header
	attrBytes   = 88
	entryBytes  = 128
	rootID      = 1
	noID        = 0 // which the guest can't name
)

type opcode uint32

const (
	opLookup      opcode = 1
	opForget      opcode = 2
	opGetattr     opcode = 3
	opSetattr     opcode = 4
	opReadlink    opcode = 5
	opSymlink     opcode = 6
	opMknod       opcode = 8
	opMkdir       opcode = 9
	opUnlink      opcode = 10
	opRmdir       opcode = 11
	opRename      opcode = 12
	opLink        opcode = 13
	opOpen        opcode = 14
	opRead        opcode = 15
	opWrite       opcode = 16
	opStatfs      opcode = 17
	opRelease     opcode = 18
	opFsync       opcode = 20
	opFlush       opcode = 25
	opInit        opcode = 26
	opOpendir     opcode = 27
	opReaddir     opcode = 28
	opReleasedir  opcode = 29
	opFsyncdir    opcode = 30
	opGetlk       opcode = 31
	opSetlk       opcode = 32
	opSetlkw      opcode = 33
	opCreate      opcode = 35
	opInterrupt   opcode = 36
	opDestroy     opcode = 38
	opBatchForget opcode = 42
	opFallocate   opcode = 43
	opReaddirplus opcode = 44
	opRename2     opcode = 45
	opLseek       opcode = 46
)

// Flags of FUSE_INIT.
const (
	initAsyncRead       = 1 << 0
	initPosixLocks      = 1 << 1
	initBigWrites       = 1 << 5
	initFlockLocks      = 1 << 10
	initAutoInvalData   = 1 << 12
	initReaddirplus     = 1 << 13
	initReaddirplusAuto = 1 << 14
	initParallelDirops  = 1 << 18
	initMaxPages        = 1 << 22
	initCacheSymlinks   = 1 << 23
)

// Flags of the reply to FUSE_OPEN.
const (
	openKeepCache = 1 << 1
	openNoFlush   = 1 << 5
)

const (
	getattrFH       = 1 << 0
	lkFlock         = 1 << 0
	fsyncDatasync   = 1 << 0
	notifyInvalNode = 2 // FUSE_NOTIFY_INVAL_INODE
)

// What FUSE_SETATTR sets (FATTR_*).
const (
	setMode     = 1 << 0
	setUID      = 1 << 1
	setGID      = 1 << 2
	setSize     = 1 << 3
	setAtime    = 1 << 4
	setMtime    = 1 << 5
	setFH       = 1 << 6
	setAtimeNow = 1 << 7
	setMtimeNow = 1 << 8
)

var order = binary.LittleEndian

// request is one message of the guest's kernel.
type request struct {
	op     opcode
	unique uint64
	node   uint64
	asker  owner
	body   []byte
}

// parseRequest takes the header off a message.
func parseRequest(b []byte) (request, bool) {
	if len(b) < headerBytes || uint64(order.Uint32(b)) != uint64(len(b)) {
		return request{}, false
	}
	r := request{op: opcode(order.Uint32(b[4:])), unique: order.Uint64(b[8:]), node: order.Uint64(b[16:]), asker: owner{order.Uint32(b[24:]), order.Uint32(b[28:])}, body: b[headerBytes:]}
	extra := int(order.Uint16(b[36:])) * 8 // extensions, at the end
	if extra > len(r.body) {
		return request{}, false
	}
	r.body = r.body[:len(r.body)-extra]
	return r, true
}

// args are the fields of a request's body in their order. One that ends too
// early gives zeroes, and bad is set.
type args struct {
	rest []byte
	bad  bool
}

func (a *args) take(n int) []byte {
	if len(a.rest) < n {
		a.bad, a.rest = true, nil
		return make([]byte, n)
	}
	b := a.rest[:n]
	a.rest = a.rest[n:]
	return b
}

func (a *args) u32() uint32 { return order.Uint32(a.take(4)) }
func (a *args) u64() uint64 { return order.Uint64(a.take(8)) }
func (a *args) skip(n int)  { a.take(n) }

// text is a string up to its NUL.
func (a *args) text() string {
	for i, c := range a.rest {
		if c == 0 {
			s := string(a.rest[:i])
			a.rest = a.rest[i+1:]
			return s
		}
	}
	a.bad = true
	return ""
}

// err is EINVAL for a body that was too short.
func (a *args) err() error {
	if a.bad {
		return unix.EINVAL
	}
	return nil
}

// finish fills the header of a reply whose first replyBytes were left free.
func finish(reply []byte, unique uint64, errno unix.Errno) []byte {
	if errno != 0 {
		reply = reply[:replyBytes]
	}
	order.PutUint32(reply, uint32(len(reply)))
	order.PutUint32(reply[4:], uint32(-int32(errno)))
	order.PutUint64(reply[8:], unique)
	return reply
}

func put32(b []byte, values ...uint32) []byte {
	for _, v := range values {
		b = order.AppendUint32(b, v)
	}
	return b
}

func put64(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = order.AppendUint64(b, v)
	}
	return b
}
