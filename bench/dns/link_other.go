//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/msb-project/msb/dnsguard"
)

var errNoLink = errors.New("measuring through the link needs Linux: its guest is a network namespace")

func serveLink(context.Context, *dnsguard.Guard, string) error { return errNoLink }

func (b *bench) measureLink(context.Context, string) error { return errNoLink }
