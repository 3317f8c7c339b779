package policies

import "fmt"

// LoadSources is Load that also names the files it read, path first, the
// included ones after it; also where it fails. Whoever follows a policy watches
// all of them.
func LoadSources(path string) (p *Policy, sources []string, err error) {
	open := func(file string) ([]byte, error) {
		sources = append(sources, file)
		return readFile(file)
	}
	data, err := open(path)
	if err != nil {
		return nil, sources, fmt.Errorf("reading the policy: %w", err)
	}
	p, err = Parse(path, data, open)
	return p, sources, err
}
