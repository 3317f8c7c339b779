package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/pflag"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// pcapFlags are the options of a capture.
type pcapFlags struct {
	path, size string
	off        bool
	age        time.Duration
	keep       int
}

func (p *pcapFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&p.path, "pcap", "", "write every frame of the link to this pcapng `file`")
	fl.BoolVar(&p.off, "pcap-off", false, "begin with the capture off; SIGUSR1 turns it on, SIGUSR2 off; with a name: msb capture NAME on")
	fl.StringVar(&p.size, "pcap-size", "256M", "`size` at which the capture begins a new file; FILE.1 is the one before")
	fl.DurationVar(&p.age, "pcap-age", 0, "age at which the capture begins a new file, \"1h\"; 0 for none")
	fl.IntVar(&p.keep, "pcap-keep", capture.DefaultKeep, "how many files stay beside the one that is written")
}

// options checks the options that go with --pcap.
func (p *pcapFlags) options() (sandbox.PcapOptions, error) {
	o := sandbox.PcapOptions{Off: p.off, MaxAge: p.age, Keep: p.keep}
	if p.path == "" && p.off {
		return o, errors.New("--pcap-off needs --pcap FILE: where should the frames go once it is on?")
	}
	var err error
	if o.MaxBytes, err = policies.ParseSize(p.size); err != nil {
		return o, fmt.Errorf("--pcap-size: %w", err)
	}
	switch {
	case o.MaxBytes < 1<<20:
		return o, errors.New("--pcap-size: at least 1M: one batch of frames is as large")
	case o.MaxAge < 0 || o.MaxAge > 0 && o.MaxAge < time.Second:
		return o, errors.New("--pcap-age: at least 1s, or 0 for none")
	case o.Keep < 1 || o.Keep > 1000:
		return o, errors.New("--pcap-keep: 1 to 1000 files")
	}
	return o, nil
}

// onSwitch calls do when a signal asks for the capture to be turned on or off, until the function that it
// returns is called.
func onSwitch(do func(on bool)) (stop func()) {
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, sandbox.SignalCaptureOn, sandbox.SignalCaptureOff)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range ch {
			do(s == sandbox.SignalCaptureOn)
		}
	}()
	return func() {
		signal.Stop(ch)
		close(ch)
		<-done
	}
}

// switched says what became of a wish to switch the capture.
func (u *ui) switched(err error, on bool) {
	switch {
	case err != nil:
		u.warn("the capture can't be switched: %s", err)
	case on:
		u.note("the capture is on")
	default:
		u.note("the capture is off")
	}
}
