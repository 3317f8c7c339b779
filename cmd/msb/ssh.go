package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/sandbox/sshd"
)

// errNoSSH is for a machine without OpenSSH's client.
var errNoSSH = errors.New("there is no ssh program in PATH; install OpenSSH's client (Debian: apt-get install openssh-client), or use msb shell NAME")

func newSSHCommand() *cobra.Command {
	var tty bool
	c := &cobra.Command{
		Use:   "ssh [flags] NAME [COMMAND [ARG...]]",
		Short: "Open a shell in a sandbox that runs, or run a command there, with ssh",
		Long: `Runs OpenSSH's client with what it needs to reach the sandbox; your own ssh
configuration isn't read. For scp, sftp, rsync, git, editors, flags of ssh such as -L,
and other users of the guest (ssh root@agent.msb) see msb ssh-config. No port is
opened: ssh runs msb, which leads into the sandbox. The exit code is ssh's.`,
		Example: `  msb ssh agent
  msb ssh agent uname -a
  msb ssh -t agent top`,
		Args: named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 && strings.HasPrefix(args[1], "-") {
				return &usageError{err: fmt.Errorf("%s stands behind the name: flags go before it, and ssh's own are for ssh and msb ssh-config", args[1]), help: "msb ssh --help"}
			}
			if err := checkSSHName(args[0]); err != nil {
				return err
			}
			program, err := exec.LookPath("ssh")
			if err != nil {
				return errNoSSH
			}
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			st, err := home.Inspect(args[0])
			if err != nil {
				return err
			}
			if !st.Running {
				return sandbox.Fail(fmt.Errorf("%w: %s; `msb start %s` starts it", sandbox.ErrNotRunning, st.Name, st.Name))
			}
			client, err := sshClient(home, st)
			if err != nil {
				return err
			}
			options, err := client.Options()
			if err != nil {
				return err
			}
			return runSSH(program, options, tty, args)
		},
	}
	c.Flags().SetInterspersed(false) // what follows NAME is the command's own
	c.Flags().BoolVarP(&tty, "tty", "t", false, "give a COMMAND a terminal; a shell has one if you have")
	return c
}

// checkSSHName refuses what ssh takes and msb ssh doesn't: a host name, and a user.
func checkSSHName(arg string) error {
	user, host, hasUser := strings.Cut(arg, "@")
	if !hasUser {
		host = user
	}
	name, isHost := strings.CutSuffix(host, sshd.HostName(""))
	valid := sandbox.CheckName(name) == nil // Inspect refuses the others
	switch {
	case valid && hasUser:
		return sandbox.Fail(fmt.Errorf("%w %q: msb ssh takes no user; use ssh %s@%s with what msb ssh-config prints, or msb shell --user %s %s", sandbox.ErrName, arg, user, sshd.HostName(name), user, name))
	case valid && isHost:
		return sandbox.Fail(fmt.Errorf("%w %q: write msb ssh %s; ssh itself knows %s by what msb ssh-config prints", sandbox.ErrName, arg, name, arg))
	}
	return nil
}

// runSSH becomes ssh.
func runSSH(program string, options []string, tty bool, args []string) error {
	argv := []string{"ssh", "-F", "none"}
	for _, o := range options {
		argv = append(argv, "-o", o)
	}
	if tty {
		argv = append(argv, "-t")
	}
	argv = append(append(argv, "--", sshd.HostName(args[0])), args[1:]...)
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, argv, os.Environ()))
}

// sshClient makes the sandbox's keys if they are missing. The configuration names this msb's path and its state directory.
func sshClient(home *sandbox.Home, st *sandbox.Status) (*sshd.Client, error) {
	keys, err := sshd.OpenKeys(st.Dir)
	if err != nil {
		return nil, sandbox.Fail(err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &sshd.Client{Keys: keys, Proxy: []string{self, "ssh-proxy", st.Name}}
	if os.Getenv(sandbox.EnvHome) != "" {
		c.Proxy = append([]string{"/usr/bin/env", sandbox.EnvHome + "=" + home.Dir()}, c.Proxy...)
	}
	return c, nil
}

func newSSHConfigCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "ssh-config [NAME...]",
		Short: "Print the ssh configuration with which ssh, scp, rsync, git and editors reach sandboxes",
		Long: `Prints a Host block for each sandbox, or for those that are named, whose host name is
NAME.msb. Put it into a file that the top of ~/.ssh/config includes, and print it again
when sandboxes were made or renamed.`,
		Example: `  msb ssh-config > ~/.ssh/msb.conf     # once, at the top of ~/.ssh/config: Include msb.conf
  ssh agent.msb
  rsync -a src/ agent.msb:src/`,
		RunE: func(_ *cobra.Command, args []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			all, err := statusesOf(ui, home, args)
			if err != nil {
				return err
			}
			text := "# Printed by msb ssh-config.\n"
			for i := range all {
				client, err := sshClient(home, &all[i])
				if err != nil {
					return err
				}
				block, err := client.Host(all[i].Name)
				if err != nil {
					return err
				}
				text += "\n" + block
			}
			return ui.print(text)
		},
	}
}

// statusesOf are the sandboxes of these names, or all whose state can be read.
func statusesOf(ui *ui, home *sandbox.Home, names []string) ([]sandbox.Status, error) {
	if len(names) > 0 {
		all := make([]sandbox.Status, 0, len(names))
		for _, name := range names {
			st, err := home.Inspect(name)
			if err != nil {
				return nil, err
			}
			all = append(all, *st)
		}
		return all, nil
	}
	listed, err := home.List()
	if err != nil {
		return nil, err
	}
	all := listed[:0]
	for i := range listed {
		if listed[i].Problem != "" {
			ui.warn("%s is left out: %s", listed[i].Name, listed[i].Problem)
			continue
		}
		all = append(all, listed[i])
	}
	return all, nil
}
