package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/guest/assets"
	"github.com/msb-project/msb/internal/vm/runner"
)

// trialTime bounds the trial of the confinement, which takes some milliseconds.
const trialTime = 10 * time.Second

func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// landlock reports the kernel's Landlock ABI version, by which the VMM's file access is confined.
func landlock(trial runner.Trial) finding {
	if trial.Landlock == 0 {
		return finding{Name: "landlock", Detail: "not in this kernel, or not in its list of lsm", Remedy: landlockRemedy}
	}
	return finding{Name: "landlock", OK: true, Detail: fmt.Sprintf("ABI %d", trial.Landlock)}
}

// cgroup reports whether the VMM's memory and threads are bounded.
func cgroup(trial runner.Trial) finding {
	if !trial.Cgroup {
		return finding{Name: "cgroup", Detail: "no control group of version 2 with memory and pids is delegated to this user: " +
			"the memory and the threads of a VMM that was broken out of are not bounded", Remedy: cgroupRemedy}
	}
	return finding{Name: "cgroup", OK: true, Detail: "bounds the VMM's memory and threads"}
}

const (
	cgroupRemedy     = "start msb in a service or scope of your user's systemd (systemd-run --user --scope); msb runs without"
	landlockRemedy   = "a kernel from 5.13 with lsm=landlock confines the VMM's files as well; msb runs without"
	namespacesRemedy = "allow unprivileged user namespaces (user.max_user_namespaces, kernel.unprivileged_userns_clone, " +
		"kernel.apparmor_restrict_unprivileged_userns; in a container, its seccomp profile); msb runs without"
)

// confinement confines a process as a VMM would be, and reports what held.
func confinement(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	trial, err := runner.Try(ctx, assets.VMM().Packed)
	held := finding{Name: "confinement"}
	if err != nil {
		held.Required = true
		held.Detail = "the VMM's process can't be confined: " + err.Error()
		held.Remedy = "msb needs seccomp filters and no_new_privs: allow them in the container's profile"
		return []finding{landlock(trial), cgroup(trial), held}
	}
	var has, remedies []string
	if trial.Namespaces == nil {
		has = append(has, "own namespaces")
	} else {
		has = append(has, "no namespaces ("+trial.Namespaces.Error()+")")
		remedies = append(remedies, namespacesRemedy)
	}
	if trial.Landlock > 0 {
		has = append(has, fmt.Sprintf("Landlock (ABI %d)", trial.Landlock))
	} else {
		has = append(has, "no Landlock")
		remedies = append(remedies, landlockRemedy)
	}
	held.OK = len(remedies) == 0
	held.Detail = strings.Join(append(has, "seccomp"), ", ")
	held.Remedy = strings.Join(remedies, "; ")
	return []finding{landlock(trial), cgroup(trial), held}
}
