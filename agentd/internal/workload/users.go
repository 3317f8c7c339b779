//go:build linux

package workload

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// identity is who a process runs as.
type identity struct {
	uid, gid uint32
	groups   []uint32
	name     string
	home     string
}

// maxAccountFileBytes bounds /etc/passwd and /etc/group, which an image made.
const maxAccountFileBytes = 4 << 20

// maxGroups is NGROUPS_MAX of Linux.
const maxGroups = 65536

// accounts reads the image's account files.
type accounts struct{ passwd, group string }

// ownAccounts are those of the root in which the caller's thread stands.
var ownAccounts = accounts{passwd: "/etc/passwd", group: "/etc/group"}

// LookupUser returns the numbers of "", name, uid, name:group or uid:gid, where
// it is called from (Root.Run).
func LookupUser(spec string) (uid, gid uint32, err error) {
	id, err := ownAccounts.lookup(spec)
	return id.uid, id.gid, err
}

// Owner is a user with the home that its image gives it.
type Owner struct {
	UID, GID uint32
	Home     string
}

// LookupOwner is LookupUser with the home.
func LookupOwner(spec string) (Owner, error) {
	id, err := ownAccounts.lookup(spec)
	return Owner{UID: id.uid, GID: id.gid, Home: id.home}, err
}

// lookup resolves "", name, uid, name:group, uid:gid. A uid that the image
// does not know is taken as it stands; a name must exist.
func (a accounts) lookup(spec string) (identity, error) {
	userPart, groupPart, hasGroup := strings.Cut(spec, ":")
	if userPart == "" {
		userPart = "0"
	}
	users, err := readAccounts(a.passwd, 7)
	if err != nil {
		return identity{}, err
	}
	id, found := identity{home: "/"}, false
	num, numeric := parseID(userPart)
	for _, f := range users {
		uid, ok := parseID(f[2])
		if !ok || (f[0] != userPart && (!numeric || uid != num)) {
			continue
		}
		gid, ok := parseID(f[3])
		if !ok {
			continue
		}
		id, found = identity{uid: uid, gid: gid, name: f[0], home: f[5]}, true
		break
	}
	switch {
	case !found && !numeric:
		return identity{}, fmt.Errorf("the image has no user %q in /etc/passwd; give one that it has, or a number", userPart)
	case !found:
		id.uid = num
		if num == 0 {
			id.name, id.home = "root", "/root"
		}
	}
	if id.home == "" {
		id.home = "/"
	}
	groups, err := readAccounts(a.group, 4)
	if err != nil {
		return identity{}, err
	}
	if hasGroup {
		id.gid, err = lookupGroup(groups, groupPart)
		id.groups = []uint32{}
		return id, err
	}
	id.groups = memberOf(groups, id.name)
	return id, nil
}

func lookupGroup(groups [][]string, name string) (uint32, error) {
	num, numeric := parseID(name)
	for _, f := range groups {
		if gid, ok := parseID(f[2]); ok && f[0] == name {
			return gid, nil
		}
	}
	if !numeric {
		return 0, fmt.Errorf("the image has no group %q in /etc/group", name)
	}
	return num, nil
}

func memberOf(groups [][]string, user string) []uint32 {
	ids := []uint32{}
	if user == "" {
		return ids
	}
	for _, f := range groups {
		gid, ok := parseID(f[2])
		if !ok || len(ids) == maxGroups {
			continue
		}
		for _, m := range strings.Split(f[3], ",") {
			if strings.TrimSpace(m) == user {
				ids = append(ids, gid)
				break
			}
		}
	}
	return ids
}

// parseID accepts what fits uid_t except its highest value, which means "no
// change" to the system calls.
func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n != 1<<32-1
}

// readAccounts returns the lines of a file that have all their fields. A
// missing file has none.
func readAccounts(path string, fields int) ([][]string, error) {
	text, err := readImageFile(path, maxAccountFileBytes)
	if err != nil {
		if os.IsNotExist(err) {
			return nil, nil
		}
		return nil, err
	}
	var lines [][]string
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimRight(line, "\r\n"), ":"); len(f) >= fields {
			lines = append(lines, f)
		}
	}
	return lines, nil
}

// readImageFile reads a regular file that an image or a workload made: a FIFO
// of that name must not stop the agent, nor a huge file fill its memory.
func readImageFile(path string, most int64) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if st.Mode().Type() != 0 || st.Size() > most {
		return "", &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("not a regular file of at most %d bytes", most)}
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	return string(b), err
}
