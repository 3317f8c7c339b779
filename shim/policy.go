package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim/nodesettings"
)

// maxPolicy bounds the text of a pod's own policy, in bytes.
const maxPolicy = 64 << 10

// nodePolicy sets what a pod may reach. Without an annotation that is what the node's floor allows; with one it is what
// both allow. Without a floor nothing is allowed, and no pod may say otherwise: a policy names files and commands of the
// node, too.
func nodePolicy(cfg *sandbox.Config, s *settings, annotations map[string]string) error {
	floor, err := floorOf(s)
	if err != nil {
		return err
	}
	text, own := annotations[annotationPolicy]
	switch {
	case floor == nil && own:
		return refused(fmt.Sprintf("the annotation %s is used, but this node has no floor that would bound it; have its operator write %s", annotationPolicy, nodesettings.DefaultFloor))
	case floor == nil:
		return nil
	case !own:
		cfg.Policy, cfg.Trust = floor, true // root's own file
		return nil
	case len(text) > maxPolicy:
		return refused(fmt.Sprintf("the annotation %s has %d bytes; give at most %d", annotationPolicy, len(text), maxPolicy))
	}
	p, err := policies.Parse(annotationPolicy, []byte(text), nil)
	if err != nil {
		return refused(err.Error())
	}
	granted, err := ownSecrets(p, podDir(s, annotations))
	if err != nil {
		return err
	}
	if len(granted) > 0 { // what is the pod's own needs no grant; where it goes, the floor says
		with := *floor
		with.Secrets = slices.Concat(floor.Secrets, granted)
		floor = &with
	}
	if _, err := policies.Tighten(floor, p); err != nil {
		return refused("beyond the node's floor: " + err.Error())
	}
	// What the policy takes of the node is what the floor names, which Tighten has just found.
	cfg.Policy, cfg.Floor, cfg.Trust = policies.Inherit(floor, p), floor, true
	return nil
}

// A pod chooses whether it has a capture, and what passes: one without an end would fill the node's disk. These are the bounds of audit
// logs, too.
const (
	maxCapture  = 64 << 20 // bytes
	oldCaptures = 4
)

// auditLabels are on all lines of a pod's audit log, or of a container that is alone.
func auditLabels(id string, annotations map[string]string, s *settings) (map[string]string, error) {
	labels := map[string]string{"node": s.Node}
	for label, value := range map[string]string{"namespace": annotations[annotationPodNamespace], "pod": annotations[annotationPodName]} {
		if value != "" {
			labels[label] = value
		}
	}
	if annotations[annotationSandbox] == "" {
		labels["container"] = id
	}
	if err := audit.CheckLabels(labels); err != nil {
		return nil, refused("the names of the pod, its container and its node in the audit log: " + err.Error())
	}
	return labels, nil
}

// recordName is what may be part of a file's name: what Kubernetes and containerd allow in names, and no path.
var recordName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// records sets where a pod's capture and audit log go, if it asks for them. No part of the paths is the pod's choice but
// its names.
func records(cfg *sandbox.Config, s *settings, id string, annotations map[string]string) error {
	capture, err := onOff(annotationCapture, annotations[annotationCapture])
	log, err2 := onOff(annotationAudit, annotations[annotationAudit])
	if err := errors.Join(err, err2); err != nil || !capture && !log {
		return err
	}
	base := id
	if namespace, name := annotations[annotationPodNamespace], annotations[annotationPodName]; name != "" {
		if !recordName.MatchString(namespace) || !recordName.MatchString(name) {
			return refused(fmt.Sprintf("the pod's name %q in %q is none of Kubernetes", name, namespace))
		}
		base = namespace + "_" + name + "_" + id
	}
	if !recordName.MatchString(id) {
		return refused(fmt.Sprintf("the id %q is none of containerd", id))
	}
	if err := os.MkdirAll(s.Records, 0o700); err != nil {
		return err
	}
	if capture {
		cfg.Pcap = filepath.Join(s.Records, base+".pcapng")
		cfg.PcapOptions = sandbox.PcapOptions{MaxBytes: maxCapture, Keep: oldCaptures}
	}
	if log {
		cfg.Audit = filepath.Join(s.Records, base+".audit.jsonl")
	}
	return nil
}
