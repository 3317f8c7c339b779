// Package vmmtest builds vm/vmm for tests, which must not depend on when msb's parts were built. It is for tests alone and
// protects against nothing.
package vmmtest
