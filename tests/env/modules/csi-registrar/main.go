// csi-registrar registers a CSI driver at a kubelet: it serves the registration protocol of plugins on a socket until it is
// killed.
//
//	csi-registrar SOCKET DRIVER ENDPOINT
//
// The tests' own driver cannot do that for a Go kubelet, which names the path of the socket as the server's authority; Rust's
// gRPC refuses such a name, and Go's does not.
package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type registrar struct {
	registration.UnimplementedRegistrationServer
	driver, endpoint string
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.driver, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		fmt.Fprintf(os.Stderr, "csi-registrar: %s is refused: %s\n", r.driver, status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func main() {
	if len(os.Args) != 4 {
		fail("usage: csi-registrar SOCKET DRIVER ENDPOINT")
	}
	// What a killed one has left.
	_ = os.Remove(os.Args[1])
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		fail(err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar{driver: os.Args[2], endpoint: os.Args[3]})
	fail(server.Serve(listener))
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, "csi-registrar:", why)
	os.Exit(1)
}
