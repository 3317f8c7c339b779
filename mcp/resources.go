package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// The resources. Those of one sandbox are templates.
const (
	resourceScheme    = "msb://"
	resourceRuntime   = resourceScheme + "runtime"
	resourceSandboxes = resourceScheme + "sandboxes"
	resourcePolicy    = resourceScheme + "policy"
	resourceDenials   = resourceScheme + "denials"
	ofSandbox         = resourceSandboxes + "/{name}"

	// maxURI bounds the URI of a resource, in bytes.
	maxURI = 8 << 10
	// readWait is how long a read may take: a file of a stopped sandbox waits for its start.
	readWait = patience
)

// what names a resource of a sandbox, or of the server if there is no sandbox.
const (
	aboutRuntime   = "runtime"
	aboutSandboxes = "sandboxes"
	aboutPolicy    = "policy"
	aboutDenials   = "denials"
	aboutFile      = "files"
)

// resourceURI is the parsed URI of a resource.
type resourceURI struct{ sandbox, about, path string }

// parseResource reads the URI of a resource.
func parseResource(uri string) (r resourceURI, ok bool) {
	rest, ok := strings.CutPrefix(uri, resourceScheme)
	if !ok || len(uri) > maxURI {
		return r, false
	}
	name, of, one := strings.Cut(strings.TrimPrefix(rest, "sandboxes/"), "/")
	switch {
	case !strings.HasPrefix(rest, "sandboxes/"):
		return resourceURI{about: rest}, slices.Contains([]string{aboutRuntime, aboutSandboxes, aboutPolicy, aboutDenials}, rest)
	case !one || sandbox.CheckName(name) != nil:
		return r, false
	case of == aboutPolicy || of == aboutDenials:
		return resourceURI{sandbox: name, about: of}, true
	}
	escaped, ok := strings.CutPrefix(of, aboutFile+"/")
	path, err := url.PathUnescape(escaped)
	return resourceURI{name, aboutFile, "/" + path}, ok && err == nil && path != ""
}

// addResources has p list the resources, and read them.
func (s *server) addResources(p *sdk.Server, version string) {
	read := func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		ctx, cancel := context.WithTimeout(ctx, readWait)
		defer cancel()
		text, err := s.resource(ctx, version, req.Params.URI)
		if err != nil {
			return nil, notReadable(err)
		}
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: req.Params.URI, Text: text}}}, nil
	}
	const asJSON, plainText = "application/json", "text/plain"
	for _, r := range []sdk.Resource{
		{URI: resourceRuntime, Name: "runtime", Title: "This server", MIMEType: asJSON, Description: "Version, bounds and who answers requests, as JSON."},
		{URI: resourceSandboxes, Name: "sandboxes", Title: "Sandboxes", MIMEType: asJSON, Description: "What sandbox_list says, as JSON."},
		{URI: resourcePolicy, Name: "policy", Title: "The operator's policy", MIMEType: "application/toml", Description: "The network policy that no sandbox goes beyond, as TOML."},
		{URI: resourceDenials, Name: "denials", Title: "Denials", MIMEType: plainText, Description: "What the policy denied to the default sandbox, the newest first."},
	} {
		p.AddResource(&r, read)
	}
	for _, r := range []sdk.ResourceTemplate{
		{URITemplate: ofSandbox + "/policy", Name: "sandbox-policy", Title: "Policy of a sandbox", MIMEType: "application/toml", Description: "The network policy in force in a sandbox, with what was approved."},
		{URITemplate: ofSandbox + "/denials", Name: "sandbox-denials", Title: "Denials of a sandbox", MIMEType: plainText, Description: "What the policy denied to a sandbox, the newest first."},
		{URITemplate: ofSandbox + "/files/{+path}", Name: "sandbox-file", Title: "File of a sandbox", MIMEType: plainText, Description: "The first bytes of a file, as fs_read gives them."},
	} {
		p.AddResourceTemplate(&r, read)
	}
}

// notReadable turns an error about a resource into one for a client.
func notReadable(err error) error {
	code := int64(jsonrpc.CodeInternalError)
	if errors.Is(err, sandbox.ErrNoSandbox) {
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: sentence(err)}
}

// knownResources refuses URIs of unknown resources, before go-sdk repeats them in its error.
func knownResources(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if p, _ := req.GetParams().(*sdk.ReadResourceParams); p != nil {
			if _, ok := parseResource(p.URI); !ok {
				return nil, noResource(p.URI)
			}
		}
		return next(ctx, method, req)
	}
}

func noResource(uri string) error {
	var data json.RawMessage
	if len(uri) <= maxFault/2 {
		data, _ = json.Marshal(map[string]string{"uri": uri}) // of strings
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Data: data, Message: "there is no resource " + printed(uri) + "; resources/list and resources/templates/list show them"}
}

// resource is the text of a resource.
func (s *server) resource(ctx context.Context, version, uri string) (string, error) {
	r, ok := parseResource(uri)
	if !ok {
		return "", noResource(uri)
	}
	var st *sandbox.Status
	if r.sandbox != "" {
		var err error
		if st, err = s.own(r.sandbox, false); err != nil {
			return "", err
		}
		r.sandbox = st.Name
	}
	args := func(more map[string]any) json.RawMessage {
		more["sandbox"] = r.sandbox
		b, _ := json.Marshal(more) // strings
		return b
	}
	switch r.about {
	case aboutRuntime:
		return s.runtime(version)
	case aboutSandboxes:
		return s.sandboxList(ctx, nil)
	case aboutDenials:
		return s.network(ctx, args(map[string]any{"action": "denied"}))
	case aboutFile:
		return s.files.fsRead(ctx, args(map[string]any{"path": r.path, "length": maxRead}))
	}
	if st == nil {
		return shownPolicy("the operator's policy", s.opts.Floor), nil
	}
	p, err := s.only(st).Policy(st.Name)
	if err != nil {
		return "", err
	}
	return shownPolicy("the policy in force in "+st.Name, p), nil
}

// runtime is what a client may know of this server.
func (s *server) runtime(version string) (string, error) {
	approve := policies.InTerminal
	if a := s.opts.Floor.Agent; a != nil {
		approve = a.Approve
	}
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	return asJSON(struct {
		Version   string `json:"version"`
		Sandboxes int    `json:"max_sandboxes"`
		CPUs      int    `json:"max_cpus"`
		MemoryMB  int64  `json:"max_memory_mb"`
		DiskMB    int64  `json:"max_disk_mb"`
		IdleStop  int64  `json:"idle_stop_s,omitempty"`
		Lifetime  int64  `json:"lifetime_s,omitempty"`
		Approve   string `json:"approve"`
	}{version, s.opts.Sandboxes, s.opts.CPUs, s.opts.Memory >> 20, s.opts.Disk >> 20, seconds(s.opts.IdleStop), seconds(s.opts.Lifetime), approve.String()})
}

// shownPolicy is a policy without what it takes from this machine: sources of secrets, files, mapped addresses, proxies.
func shownPolicy(what string, p *policies.Policy) string {
	head := "msb: " + what + ", without what it takes of this machine."
	if p.Floor != nil {
		head += " What the operator's (" + resourcePolicy + ") denies is denied too."
	}
	if len(p.Secrets) > 0 {
		names := make([]string, 0, len(p.Secrets))
		for i := range p.Secrets {
			names = append(names, p.Secrets[i].Name)
		}
		head += " Secrets, by the variables of their placeholders: " + strings.Join(names, ", ") + "."
	}
	shown := *p
	shown.Floor, shown.Secrets, shown.Hosts, shown.Agent, shown.Include = nil, nil, nil, nil, nil
	shown.Sandbox = policies.Default().Sandbox
	shown.TLS.ExtraCA, shown.TLS.Via = nil, ""
	return string(policies.EncodeWith(&shown, policies.Comments{Head: head}))
}
