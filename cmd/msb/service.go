package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox"
)

func newServiceCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "service NAME [-- COMMAND [ARG...]]",
		Short: "Print a systemd unit that starts a sandbox at boot and after a crash",
		Long: `Prints a unit for the user's own systemd, which runs msb start --foreground: it
starts the sandbox at boot, and again when it ended by itself or its supervisor was
killed, but not after msb stop. A COMMAND is run in it at each start, as by msb run -d.`,
		Example: `  msb service web -- python -m http.server > ~/.config/systemd/user/msb-web.service
  systemctl --user daemon-reload && systemctl --user enable --now msb-web`,
		Args: named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			if dash := c.ArgsLenAtDash(); len(args) > 1 && dash != 1 {
				return &usageError{err: fmt.Errorf("put the command behind --, as in msb service %s -- COMMAND", args[0]), help: "msb service --help"}
			}
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			if _, err := home.Inspect(args[0]); err != nil {
				return err
			}
			unit, err := unitOf(args[0], args[1:])
			if err != nil {
				return err
			}
			return ui.print(unit)
		},
	}
}

// unitText is a unit of systemd.service(5). KillMode=mixed signals msb alone, which lets the guest write back first; a
// signal to all processes would end the VMM. For the codes of RestartPreventExitStatus a restart doesn't help.
const unitText = `# The sandbox %[1]s of msb, as msb service printed it. To install it:
#   msb service %[1]s > ~/.config/systemd/user/msb-%[1]s.service
#   systemctl --user daemon-reload
#   systemctl --user enable --now msb-%[1]s.service
#   loginctl enable-linger       # starts it at boot, and not at the first login
[Unit]
Description=msb sandbox %[1]s
StartLimitIntervalSec=10min
StartLimitBurst=20

[Service]
Type=exec
%[2]sExecStart=%[3]s
Restart=on-failure
RestartSec=5s
RestartPreventExitStatus=%[4]d %[5]d
KillMode=mixed
TimeoutStopSec=60s

[Install]
WantedBy=default.target
`

// unitOf is the unit of a sandbox whose name was checked.
func unitOf(name string, argv []string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if inNPXCache(self) {
		return "", fmt.Errorf("%s is in npx's cache, which npm empties: the unit would not find it later; install the package (npm install --global FILE), and run msb service", self)
	}
	var env strings.Builder
	for _, variable := range []string{sandbox.EnvHome, vm.LibDirEnv} {
		dir := os.Getenv(variable)
		if dir == "" {
			continue
		}
		if dir, err = filepath.Abs(dir); err != nil {
			return "", err
		}
		env.WriteString("Environment=" + unitWord(variable+"="+dir) + "\n")
	}
	command := []string{unitWord(self), "start", "--foreground", name}
	if len(argv) > 0 {
		command = append(command, "--")
	}
	for _, arg := range argv {
		command = append(command, unitWord(strings.ReplaceAll(arg, "$", "$$"))) // variables are put in behind the program only
	}
	unit := fmt.Sprintf(unitText, name, env.String(), strings.Join(command, " "), exitSecret, exitSandbox)
	if len(unit) > maxUnit {
		return "", errors.New("the command is too long for a unit; put it into a script in the sandbox")
	}
	return unit, nil
}

// maxUnit is below what systemd takes as a line (LONG_LINE_MAX), in bytes.
const maxUnit = 512 << 10

// unitWord is a word of a unit's setting, quoted as systemd.syntax(7) and systemd.service(5) have it, with the
// specifiers of systemd.unit(5) made plain.
func unitWord(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '%':
			b.WriteString("%%")
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
