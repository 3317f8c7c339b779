package mcp

import (
	"context"
	"encoding/json"
)

func (s *server) imageList(_ context.Context, raw json.RawMessage) (string, error) {
	if err := decode(raw, &struct{}{}); err != nil {
		return "", err
	}
	all, err := s.opts.images()
	if err != nil {
		return "", err
	}
	return asJSON(all)
}
