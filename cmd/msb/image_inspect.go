package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image"
)

// imageDetails is what `msb image inspect` prints of one image.
type imageDetails struct {
	Refs      []string      `json:"refs"`
	Digest    string        `json:"digest"`
	Platform  string        `json:"platform"`
	SizeBytes int64         `json:"size_bytes"`
	Created   time.Time     `json:"created"`
	Disk      string        `json:"disk"`
	Config    image.Config  `json:"config"`
	Layers    []image.Layer `json:"layers"`
	// ConfigFile is the image's own configuration.
	ConfigFile json.RawMessage `json:"config_file,omitempty"`
}

func newImageInspect(ui *ui) *cobra.Command {
	var flags listFlags
	c := &cobra.Command{
		Use:   "inspect [flags] IMAGE...",
		Short: "Tell about images in the cache in JSON: digest, configuration, layers, size",
		Long: `Prints a JSON array with an object for each image, named by its reference, its digest
or the beginning of that. created is when its disk was made here, config what msb takes
from config_file, the configuration that the image's maker wrote. The cache keeps one
disk for each image: layers names those that it was made of.`,
		Example: `  msb image inspect alpine:3.20
  msb image inspect --format '{{.digest}} {{json .config.env}}' alpine:3.20`,
		Args: named(cobra.MinimumNArgs(1), "name the image"),
		RunE: func(c *cobra.Command, refs []string) error {
			all := make([]imageDetails, 0, len(refs))
			missing := forEach(refs, func(ref string) error {
				d, err := inspectImage(ref)
				if err != nil {
					return err
				}
				all = append(all, imageDetails{
					Refs: append([]string{}, d.Refs...), Digest: d.Digest, Platform: d.Platform.String(), SizeBytes: d.SizeBytes, Created: d.Created,
					Disk: d.DiskPath, Config: d.Config, Layers: append([]image.Layer{}, d.Layers...), ConfigFile: d.ConfigFile,
				})
				return nil
			})
			if len(all) == 0 {
				return missing
			}
			flags.json = flags.format == ""
			return errors.Join(printList(ui, c, &flags, all, func(d *imageDetails) string { return d.Digest }, nil), missing)
		},
	}
	c.Flags().StringVarP(&flags.format, "format", "f", "", "print each by a Go `template` with the keys of the JSON, such as '{{.digest}}'")
	return c
}

// inspectImage finds an image in the cache.
func inspectImage(ref string) (*image.Details, error) {
	store, err := openStore()
	if err != nil {
		return nil, err
	}
	d, err := store.Inspect(ref)
	if errors.Is(err, image.ErrNotCached) {
		return nil, fmt.Errorf("%w; %s`msb image ls` lists those there are", err, didYouMean(ref, knownImages()))
	}
	return d, err
}

func newImageHistory(ui *ui) *cobra.Command {
	var flags listFlags
	var whole bool
	c := &cobra.Command{
		Use:   "history [flags] IMAGE",
		Short: "Show the steps in which an image was made, the newest first",
		Long:  "Prints what the image's configuration says of its making, in the words of its maker. Images of dir: and builtin have none.",
		Example: `  msb image history alpine:3.20
  msb image history --no-trunc --format '{{.created_by}}' alpine:3.20`,
		Args: named(cobra.ExactArgs(1), "name the image"),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := inspectImage(args[0])
			if err != nil {
				return err
			}
			steps, err := d.History()
			if err != nil {
				return err
			}
			slices.Reverse(steps)
			if len(steps) == 0 && !flags.json && flags.format == "" {
				ui.note("%s has no history: its configuration names none, or an older msb fetched it", args[0])
			}
			return printList(ui, c, &flags, steps, nil, func(all []image.HistoryEntry) [][]string { return historyRows(all, whole, time.Now()) })
		},
	}
	c.Flags().BoolVar(&flags.json, "json", false, "print a JSON array")
	c.Flags().StringVar(&flags.format, "format", "", "print each by a Go `template` with the keys of --json, such as '{{.created_by}}', behind table for aligned columns; json for --json")
	c.Flags().BoolVar(&whole, "no-trunc", false, "cut nothing off")
	return c
}

func historyRows(all []image.HistoryEntry, whole bool, now time.Time) [][]string {
	const shown = 60 // characters
	rows := append(make([][]string, 0, 1+len(all)), []string{"CREATED", "CREATED BY", "COMMENT"})
	for _, h := range all {
		created, by := "-", []rune(audit.Printable(h.CreatedBy))
		if !h.Created.IsZero() {
			created = age(now.Sub(h.Created)) + " ago"
		}
		if len(by) > shown && !whole {
			by = append(by[:shown-1], '…')
		}
		rows = append(rows, []string{created, string(by), audit.Printable(h.Comment)})
	}
	return rows
}
