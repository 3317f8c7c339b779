#!/bin/sh
# Regenerates *.pb.go from the *.proto files.
# Needs protoc (Debian: protobuf-compiler) and Go; the plugins are built at the
# versions named here into a directory that is removed afterwards.
set -eu
cd "$(dirname "$0")"
gobin=$(mktemp -d)
trap 'rm -rf "$gobin"' EXIT
GOBIN=$gobin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$gobin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.0
PATH=$gobin:$PATH protoc \
	--go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative,require_unimplemented_servers=true \
	*.proto
# protoc's own version differs from machine to machine and says nothing about
# the code: without these lines the output is the same everywhere.
sed -i -e '/^\/\/ [-	 ]*protoc  *v/d' *.pb.go
