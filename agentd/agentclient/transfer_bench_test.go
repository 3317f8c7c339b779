package agentclient

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/transfer"
)

const benchmarkBytes = 32 << 20

// BenchmarkUnpackByDisk is an archive on its way from a client to the disk: what msb cp costs both before the guest does
// anything.
func BenchmarkUnpackByDisk(b *testing.B) {
	c, _, _ := attachLanes(b, &laneFiles{unpack: func(s grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		err := s.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Ready{Ready: true}})
		for err == nil {
			if _, err = s.Recv(); err == nil {
				err = s.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Read{Read: true}})
			}
		}
		if errors.Is(err, io.EOF) {
			err = s.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Report{Report: &agentpb.TreeReport{}}})
		}
		return err
	}})
	archive := make([]byte, benchmarkBytes)
	b.SetBytes(benchmarkBytes)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Files().Unpack(b.Context(), "/x", bytes.NewReader(archive), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPackByDisk is one on its way from the disk to a client.
func BenchmarkPackByDisk(b *testing.B) {
	c, _, _ := attachLanes(b, &laneFiles{pack: func(s grpc.BidiStreamingServer[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]) error {
		for i := range benchmarkBytes / transfer.PieceBytes {
			if i >= transfer.Slots {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
			if err := s.Send(packed(transfer.PieceBytes)); err != nil {
				return err
			}
		}
		return s.Send(packEnd())
	}})
	b.SetBytes(benchmarkBytes)
	b.ReportAllocs()
	for b.Loop() {
		a, err := c.Files().Pack(b.Context(), "/x", "", false)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, a); err != nil || n != benchmarkBytes {
			b.Fatal(n, err)
		}
		_ = a.Close()
	}
}
