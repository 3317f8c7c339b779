package main

import (
	"errors"
	"os"
	"os/signal"

	"github.com/msb-project/msb/sandbox"
)

var errPcapOff = errors.New("--pcap-off needs --pcap FILE: where should the frames go once it is on?")

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
