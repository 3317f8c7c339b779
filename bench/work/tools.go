//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// task is what is done in a directory of each side.
type task struct {
	what, dir string
	n         int
	argv      []string
	before    func(top string, round int) []string // a command that is not timed
}

// recipe is what mmdebstrap makes the tools' image of.
var recipe = []string{
	"--variant=essential", "--format=tar", "--include=git,golang-go,npm",
	"--setup-hook=mkdir -p \"$1\"/usr/share/man/man1",
	"--aptopt=Acquire::Languages \"none\"", "--aptopt=APT::Install-Recommends \"false\"",
	"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
	"bookworm",
}

// toolsImage is the reference of the image with git, npm and go. Making it takes minutes, so it is kept.
func toolsImage(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "msb-bench")
	key := sha256.Sum256([]byte(strings.Join(recipe, "\n")))
	path := filepath.Join(dir, fmt.Sprintf("work-%x.tar", key[:8]))
	if _, err := os.Stat(path); err == nil {
		return "docker-archive:" + path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	layer := fmt.Sprintf("%s.%d.layer", path, os.Getpid())
	half := fmt.Sprintf("%s.%d.half", path, os.Getpid())
	defer func() { _, _ = os.Remove(layer), os.Remove(half) }()
	fmt.Fprintln(os.Stderr, "bench-work: making an image of Debian's packages (once)")
	if out, err := exec.CommandContext(ctx, "mmdebstrap", append(recipe, layer)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mmdebstrap (packages mmdebstrap and uidmap): %w\n%s", err, out)
	}
	if err := archive(layer, half); err != nil {
		return "", err
	}
	return "docker-archive:" + path, os.Rename(half, path)
}

// archive makes an image of one layer, as docker save writes it.
func archive(layer, to string) error {
	l, err := tarball.LayerFromFile(layer)
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return err
	}
	img, err = mutate.ConfigFile(img, withPath(img))
	if err != nil {
		return err
	}
	tag, err := name.NewTag("bench-work:1")
	if err != nil {
		return err
	}
	return tarball.WriteToFile(to, tag, img)
}

func withPath(img v1.Image) *v1.ConfigFile {
	cf, err := img.ConfigFile()
	if err != nil {
		cf = &v1.ConfigFile{}
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", "amd64"
	cf.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local"}
	cf.Config.Cmd = []string{"/bin/sh"}
	return cf
}

// prepare makes, in the directory that it is given, a repository of 1,000 files, a module of ten packages, and a
// project whose packages are archives in it, 400 files in all.
const prepare = `set -e
cd "$1"
mkdir repo && cd repo && git init -q .
for d in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
  mkdir -p src/$d
  for f in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49; do echo "text $d $f" > src/$d/file$f; done
done
git add . && git -c user.name=x -c user.email=x@example.com commit -q -m one
cd .. && mkdir module && cd module
printf 'module example.com/m\n\ngo 1.19\n' > go.mod
{ echo 'package main'; echo 'import ('; for p in a b c d e f g h i j; do echo "\"example.com/m/$p\""; done; echo ')'; echo 'func main() {'; for p in a b c d e f g h i j; do echo "println($p.F())"; done; echo '}'; } > main.go
for p in a b c d e f g h i j; do mkdir $p; printf 'package %s\n\nfunc F() int { return len("%s") }\n' $p $p > $p/$p.go; done
go build -o program .
cd .. && mkdir project && cd project
deps=
for p in a b c d e f g h; do
  mkdir -p make/package/lib; printf '{"name":"%s","version":"1.0.0"}' $p > make/package/package.json
  i=0; while [ $i -lt 50 ]; do echo "exports.x = $i" > make/package/lib/$i.js; i=$((i+1)); done
  tar -C make -czf $p.tgz package; deps="$deps,\"$p\":\"file:$p.tgz\""
done
rm -r make
echo "{\"name\":\"project\",\"version\":\"1.0.0\",\"dependencies\":{${deps#,}}}" > package.json
npm install --offline --no-audit --no-fund --ignore-scripts
rm -r node_modules
`

func (b *bench) toolTasks(ctx context.Context) ([]task, error) {
	for _, top := range []string{plain, shared} {
		if _, err := b.guest(ctx, "sh", "-c", prepare, "sh", top); err != nil {
			return nil, err
		}
	}
	return []task{
		{what: doTool, dir: "repo", argv: []string{seriesGit, "git", "status", "--short"}},
		{what: doTool, dir: "module", argv: []string{seriesGo, "go", "build", "-o", "program", "."}, before: func(top string, round int) []string {
			return []string{"sh", "-c", `for p in "$1"/module/?; do n=${p##*/}; printf 'package %s\n\nfunc F() int { return %d }\n' $n $2 > $p/$n.go; done`, "sh", top, fmt.Sprint(round)}
		}},
		{what: doTool, dir: "project", argv: []string{seriesNPM, "npm", "ci", "--offline", "--no-audit", "--no-fund", "--ignore-scripts"}, before: func(top string, _ int) []string {
			return []string{"rm", "-rf", top + "/project/node_modules"}
		}},
	}, nil
}
