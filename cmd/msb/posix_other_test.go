//go:build !linux

package main

import "errors"

func checkPOSIX(string) error { return errors.ErrUnsupported }
