package agentclient

import (
	"context"
	"fmt"

	"github.com/msb-project/msb/agentd/agentpb"
)

// maxFoundPaths is how many the guest may name in one answer.
const maxFoundPaths = 256

// Find returns the files that were written since the image and hold one of the texts. more says that there are others, or
// that some could not be read. The guest may lie.
func (c *Client) Find(ctx context.Context, texts []string) (paths []string, more bool, err error) {
	req := new(agentpb.FindRequest)
	for _, t := range texts[:min(len(texts), agentpb.MaxFindTexts)] {
		if len(t) < agentpb.MinFindBytes || len(t) > agentpb.MaxFindBytes {
			more = true
			continue
		}
		req.Texts = append(req.Texts, []byte(t))
	}
	more = more || len(texts) > agentpb.MaxFindTexts
	if len(req.GetTexts()) == 0 {
		return nil, more, nil
	}
	resp, err := c.search.Find(ctx, req)
	if err != nil {
		return nil, false, c.callError(ctx, err)
	}
	if n := len(resp.GetPaths()); n > maxFoundPaths {
		return nil, false, c.fail(fmt.Errorf("%w: it names %d files, at most %d are asked for", ErrProtocol, n, maxFoundPaths))
	}
	for _, p := range resp.GetPaths() {
		paths = append(paths, string(p))
	}
	return paths, more || resp.GetMore(), nil
}

// searchProxy serves searches on.
type searchProxy struct {
	agentpb.UnimplementedSearchServer
	proxy
}

var _ agentpb.SearchServer = (*searchProxy)(nil)

// Find implements agentpb.SearchServer.
func (p *searchProxy) Find(ctx context.Context, r *agentpb.FindRequest) (*agentpb.FindResponse, error) {
	m, err := p.c.search.Find(ctx, r)
	return m, p.status(ctx, err)
}
