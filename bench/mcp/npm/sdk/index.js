export class Image {} export class Sandbox {} export class Snapshot {} export class Volume {}
export const isRuntimeInstalled = () => true; export const ensureRuntime = async () => {};
export class allSandboxMetrics {}
