/** Unit tests of the labextension; the browser level is tested with Playwright from pytest. */
module.exports = {
  testEnvironment: 'jsdom',
  setupFiles: ['<rootDir>/labextension/tests/setup.ts'],
  testMatch: ['<rootDir>/labextension/tests/**/*.spec.ts'],
  modulePathIgnorePatterns: ['<rootDir>/.venv/', '<rootDir>/lib/', '<rootDir>/jupyter_pause_ext/', '<rootDir>/build/'],
  transform: { '^.+\\.tsx?$': ['ts-jest', { tsconfig: '<rootDir>/labextension/tests/tsconfig.json' }] }
};
