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
	agent.proto files.proto jobs.proto directories.proto ports.proto connect.proto freeze.proto supervisor.proto
# protoc's own version differs from machine to machine and says nothing about
# the code: without these lines the output is the same everywhere.
sed -i -e '/^\/\/ [-	 ]*protoc  *v/d' agent.pb.go agent_grpc.pb.go files.pb.go files_grpc.pb.go jobs.pb.go jobs_grpc.pb.go directories.pb.go directories_grpc.pb.go ports.pb.go ports_grpc.pb.go connect.pb.go connect_grpc.pb.go freeze.pb.go freeze_grpc.pb.go supervisor.pb.go supervisor_grpc.pb.go
